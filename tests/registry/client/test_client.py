"""Finding capabilities by URL: what is asked, what is kept, what is refused."""

import asyncio
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from pml.core.errors import Invalid, PmlError, Unavailable
from pml.core.names import ToolName, parse_tool
from pml.registry.client.lookups import ABSENT_S, FRESH_S, RETRY_S
from pml.registry.client.web import MAX_REDIRECTS, Patience
from tests.promises import promise
from tests.registry.liar import JSON, Liar, body, endless, packed, raw, redirect, stalled
from tests.registry.places import GREET, PREFIX, TOOL, Reader, encoded, fill
from tests.registry.serving import serving

ENTRY = f"/mcp/{GREET}"
NAMESPACE = "/mcp/text"


# --- what is asked


async def test_a_tool_is_found_by_its_fqdn_on_the_real_server(reader: Reader, tmp_path: Path) -> None:
    async with serving(fill(tmp_path / "registry")) as served:
        found = await reader.client.find(TOOL, registry=served.url, prefix=PREFIX)
    assert found is not None
    assert (str(found.metadata.fqdn), found.source) == (GREET, served.url)


async def test_a_tool_without_an_entry_of_its_own_is_found_by_its_namespace(
    reader: Reader, liar: Liar
) -> None:
    liar.say(NAMESPACE, body(encoded("acme.tools.text")))
    assert await reader.find(liar.url) == "acme.tools.text"
    assert liar.paths == [ENTRY, NAMESPACE]


async def test_without_a_prefix_only_the_namespace_is_asked_for(reader: Reader, liar: Liar) -> None:
    liar.say(NAMESPACE, body(encoded("other.org.text")))
    assert await reader.find(liar.url, prefix=None) == "other.org.text"
    assert liar.paths == [NAMESPACE]


async def test_an_action_that_fits_no_fqdn_is_asked_for_by_its_namespace(reader: Reader, liar: Liar) -> None:
    assert await reader.find(liar.url, tool=parse_tool("text:a/../b")) is None
    assert liar.paths == [NAMESPACE]


async def test_a_tool_of_the_client_itself_is_not_asked_for(reader: Reader, liar: Liar) -> None:
    assert await reader.find(liar.url, tool=ToolName(namespace=None, action="Bash")) is None
    assert liar.asked == []


async def test_a_registry_beneath_a_path_is_asked_there(reader: Reader, liar: Liar) -> None:
    liar.say(f"/deep{ENTRY}", body(encoded()))
    assert await reader.find(f"{liar.url}/deep/") == GREET


async def test_no_cookie_and_no_credential_is_ever_sent(
    reader: Reader, liar: Liar, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".netrc").write_text("machine 127.0.0.1 login ana password secret\n")
    (home / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(home / ".netrc"))
    cookie = {"set-cookie": "id=1; path=/"}
    liar.say(ENTRY, redirect("/there", headers=cookie))
    liar.say("/there", body(encoded(), headers=cookie))
    await reader.find(liar.url)
    reader.clock.advance(FRESH_S)
    await reader.find(liar.url)
    assert liar.paths == [ENTRY, "/there"] * 2
    for asked in liar.asked:
        assert not asked.headers.keys() & {"cookie", "authorization", "proxy-authorization"}


async def test_this_machine_is_never_asked_through_a_proxy(
    reader: Reader, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    liar.say(ENTRY, body(encoded()))
    assert await reader.find(liar.url) == GREET


# --- what is kept


@promise("registry:second-call-silent")
async def test_a_second_look_makes_no_request_not_even_from_another_process(
    reader: Reader, liar: Liar
) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    reader.clock.advance(FRESH_S - 1)
    assert await reader.find(liar.url) == GREET
    reader.fresh()
    assert await reader.find(liar.url) == GREET
    assert liar.paths == [ENTRY]
    assert ["miss" in reader.lines[0], "hit" in reader.lines[1], "hit" in reader.lines[2]] == [True] * 3


@promise("registry:second-call-silent")
async def test_a_server_found_by_its_namespace_is_not_looked_up_again_either(
    reader: Reader, liar: Liar
) -> None:
    liar.say(NAMESPACE, body(encoded("acme.tools.text")))
    await reader.find(liar.url)
    reader.clock.advance(FRESH_S - 1)
    assert await reader.find(liar.url) == "acme.tools.text"
    assert liar.paths == [ENTRY, NAMESPACE]


async def test_a_stale_answer_is_asked_for_by_its_etag(reader: Reader, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    async with serving(folder) as served:
        await reader.find(served.url)
        reader.clock.advance(FRESH_S)
        assert await reader.find(served.url) == GREET
        assert [line.rsplit(" ", 1)[1] for line in served.lines] == ["200", "304"]
        assert "revalidated" in reader.lines[-1]
        await reader.find(served.url)
        assert len(served.lines) == 2
        fill(folder, description="new")
        reader.clock.advance(FRESH_S)
        found = await reader.client.find(TOOL, registry=served.url, prefix=PREFIX)
    assert found is not None
    assert found.metadata.description == "new"


async def test_an_answer_without_an_etag_is_fetched_anew_when_it_is_stale(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    reader.clock.advance(FRESH_S)
    await reader.find(liar.url)
    assert ["if-none-match" in asked.headers for asked in liar.asked] == [False, False]


async def test_an_answer_from_the_future_is_stale(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    reader.clock.advance(-10)
    await reader.find(liar.url)
    assert len(liar.asked) == 2


async def test_what_is_missing_is_not_asked_for_again_for_a_minute(reader: Reader, liar: Liar) -> None:
    assert await reader.find(liar.url) is None
    reader.clock.advance(ABSENT_S - 1)
    assert await reader.find(liar.url) is None
    assert liar.paths == [ENTRY, NAMESPACE]
    liar.say(ENTRY, body(encoded()))
    reader.clock.advance(1)
    assert await reader.find(liar.url) == GREET


async def test_what_is_taken_back_is_gone(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    liar.replies.clear()
    reader.clock.advance(FRESH_S)
    assert await reader.find(liar.url) is None


async def test_two_registries_do_not_share_answers(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    assert await reader.find(f"{liar.url}/other") is None


async def test_many_who_ask_at_once_share_one_request(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    found = await asyncio.gather(*(reader.find(liar.url) for _ in range(20)))
    assert set(found) == {GREET}
    assert liar.paths == [ENTRY]


async def test_who_asks_beside_one_that_gives_up_gets_an_answer(reader: Reader, liar: Liar) -> None:
    held = asyncio.Event()
    liar.say(ENTRY, stalled(b"", held))
    first = asyncio.ensure_future(reader.find(liar.url))
    await liar.heard.wait()
    second = asyncio.ensure_future(reader.find(liar.url))
    liar.say(ENTRY, body(encoded()))
    first.cancel()
    assert await second == GREET
    held.set()
    with pytest.raises(asyncio.CancelledError):
        await first


# --- the cache on disk


def cached(reader: Reader, kind: str) -> Path:
    (path,) = (reader.home / "cache" / "registry").glob(f"*.{kind}")
    return path


@promise("registry:no-lies")
@pytest.mark.parametrize("kind", ["body", "json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "garbage", "link", "gone"])
async def test_what_was_changed_in_the_cache_counts_for_nothing(
    reader: Reader, liar: Liar, tmp_path: Path, kind: str, damage: str
) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    path = cached(reader, kind)
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "flip":
            path.write_bytes(content.replace(b"client", b"server").replace(b'"sha256":"', b'"sha256":"0'))
        case "cut":
            path.write_bytes(content[:-1])
        case "garbage":
            path.write_bytes(b"\xff\x00{}")
        case "link":
            (tmp_path / "target").write_bytes(content)
            path.symlink_to(tmp_path / "target")
        case _:
            pass
    found = await reader.fresh().find(TOOL, registry=liar.url, prefix=PREFIX)
    assert found is not None
    assert found.metadata.routing == "client"
    assert len(liar.asked) == 2
    assert len(list(path.parent.iterdir())) == 2


async def test_an_index_of_another_entry_counts_for_nothing(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    path = cached(reader, "json")
    path.write_bytes(path.read_bytes().replace(liar.url.encode(), b"https://other.example"))
    await reader.find(liar.url)
    assert len(liar.asked) == 2


async def test_only_its_user_can_read_the_cache_and_old_bodies_go(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    liar.say(ENTRY, body(encoded(description="new")))
    reader.clock.advance(FRESH_S)
    await reader.find(liar.url)
    files = list((reader.home / "cache" / "registry").iterdir())
    assert sorted(path.suffix for path in files) == [".body", ".json"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (reader.home / "cache").stat().st_mode & 0o777 == 0o700


async def test_a_cache_that_cannot_be_written_is_no_failure(reader: Reader, liar: Liar) -> None:
    reader.home.mkdir()
    (reader.home / "cache").write_text("a file in its place")
    liar.say(ENTRY, body(encoded()))
    assert await reader.find(liar.url) == GREET
    assert await reader.find(liar.url) == GREET
    assert any("cannot keep" in line for line in reader.lines)


# --- out of reach


async def test_out_of_reach_the_last_answer_is_used_with_one_warning(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    for failing in (body(b"", status="503 Busy"), raw(b""), raw(b"nonsense\r\n\r\n")):
        liar.say(ENTRY, failing)
        reader.clock.advance(FRESH_S)
        assert await reader.find(liar.url) == GREET
    assert len(liar.asked) == 4
    assert len(reader.warnings) == 1
    assert "cannot be asked" in reader.warnings[0]


async def test_with_nobody_there_the_last_answer_is_used(reader: Reader, tmp_path: Path) -> None:
    async with serving(fill(tmp_path / "registry")) as served:
        await reader.find(served.url)
    reader.clock.advance(10 * FRESH_S)
    assert await reader.find(served.url) == GREET
    assert len(reader.warnings) == 1


async def test_with_nobody_there_and_nothing_known_the_message_says_what_to_do(reader: Reader) -> None:
    with pytest.raises(Unavailable, match="no connection") as caught:
        await reader.find("http://127.0.0.1:9")
    assert caught.value.hint is not None


async def test_a_miss_that_is_stale_is_no_answer_out_of_reach(reader: Reader, liar: Liar) -> None:
    await reader.find(liar.url, prefix=None)
    liar.say(NAMESPACE, body(b"", status="500 Oops"))
    reader.clock.advance(ABSENT_S)
    with pytest.raises(Unavailable, match="500"):
        await reader.find(liar.url, prefix=None)


async def test_what_just_failed_is_not_tried_again_at_once(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(b"", status="500 Oops"))
    for _ in range(3):
        with pytest.raises(Unavailable, match="500"):
            await reader.find(liar.url)
    assert len(liar.asked) == 1
    liar.say(ENTRY, body(encoded()))
    reader.clock.advance(RETRY_S)
    assert await reader.find(liar.url) == GREET


# --- registries that lie


@promise("registry:no-lies")
@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (body(encoded("acme.tools.text.other")), "is about `acme.tools.text.other`"),
        (body(encoded("acme.tools.text")), "is about `acme.tools.text`"),
        (body(b"<html>sign in</html>", kind="text/html; charset=utf-8"), "`text/html; charset=utf-8`"),
        (body(encoded(), kind="text/plain"), "`text/plain`"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), "no content type"),
        (body(b"<html>"), "is not JSON"),
        (body(b"[]"), "object"),
        (body(b'{"fqdn": "a.b.c", "fqdn": "a.b.d"}'), "twice"),
        (body(b"\xff\xfe{}"), "UTF-8"),
        (body(b"{}"), "fqdn"),
        (endless(), "more than"),
        (packed(b" " * 50_000_000), "more than"),
        (body(b"x", headers={"content-encoding": "br"}), "encoding `br`"),
        (redirect("http://192.0.2.1/"), "plain http"),
        (redirect("file:///etc/passwd"), "not an http or https URL"),
        (redirect("http://ana:secret@127.0.0.1/"), "user or password"),
        (redirect(ENTRY), f"more than {MAX_REDIRECTS} times"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_lie_is_refused_and_not_kept(reader: Reader, liar: Liar, reply: object, problem: str) -> None:
    liar.replies[ENTRY] = reply  # pyright: ignore[reportArgumentType]
    with pytest.raises(Invalid, match=problem):
        await reader.find(liar.url)
    liar.say(ENTRY, body(encoded()))
    assert await reader.find(liar.url) == GREET


@promise("registry:no-lies")
@pytest.mark.parametrize(
    "reply",
    [
        raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"),
        raw(b"\x00\x01\x02garbage\r\n\r\n"),
        body(b"no gzip at all", headers={"content-encoding": "gzip"}),
        raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        body(b"{}", status="401 Unauthorized"),
        body(b"{}", status="204 No Content"),
    ],
)
async def test_a_broken_answer_is_no_answer(reader: Reader, liar: Liar, reply: object) -> None:
    liar.replies[ENTRY] = reply  # pyright: ignore[reportArgumentType]
    with pytest.raises(Unavailable):
        await reader.find(liar.url)
    assert not (reader.home / "cache").exists()


@promise("registry:no-lies")
async def test_a_namespace_is_answered_only_by_what_has_it(reader: Reader, liar: Liar) -> None:
    liar.say(NAMESPACE, body(encoded("acme.tools.bank")))
    with pytest.raises(Invalid, match=r"is about `acme\.tools\.bank`"):
        await reader.find(liar.url)
    liar.say("/mcp/greet", body(encoded()))
    assert await reader.find(liar.url, tool=parse_tool("greet:run"), prefix=None) == GREET


async def test_a_lie_does_not_take_the_place_of_what_is_known(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()))
    await reader.find(liar.url)
    liar.say(ENTRY, body(encoded("acme.tools.text.other")))
    reader.clock.advance(FRESH_S)
    with pytest.raises(Invalid):
        await reader.find(liar.url)
    liar.say(ENTRY, raw(b""))
    assert await reader.find(liar.url) == GREET


@pytest.mark.parametrize(
    ("patience", "problem"),
    [
        (Patience(connect_s=20, read_s=0.05, total_s=20), "no answer within 0.05 s"),
        (Patience(connect_s=20, read_s=20, total_s=0.05), "no whole answer within 0.05 s"),
    ],
)
async def test_a_body_that_does_not_come_is_given_up(
    home: Path, liar: Liar, patience: Patience, problem: str
) -> None:
    held = asyncio.Event()
    liar.say(ENTRY, stalled(b'{"fqdn"', held))
    with pytest.raises(Unavailable, match=problem):
        await Reader(home / ".pml", patience=patience).find(liar.url)
    held.set()


async def test_redirects_within_the_registry_are_followed(reader: Reader, liar: Liar) -> None:
    for number in range(MAX_REDIRECTS):
        liar.say(f"/{number}" if number else ENTRY, redirect(f"/{number + 1}", status="307 Elsewhere"))
    liar.say(f"/{MAX_REDIRECTS}", body(encoded()))
    assert await reader.find(liar.url) == GREET


async def test_a_packed_answer_is_unpacked(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, packed(encoded()))
    assert await reader.find(liar.url) == GREET


async def test_what_follows_a_packed_answer_is_refused(reader: Reader, liar: Liar) -> None:
    content = gzip.compress(encoded()) + b"more"
    liar.say(ENTRY, body(content, headers={"content-encoding": "gzip"}))
    with pytest.raises(Unavailable, match="broken"):
        await reader.find(liar.url)


@pytest.mark.parametrize("registry", ["http://registry.example", "https://ana:secret@registry.example"])
async def test_a_registry_that_is_not_safe_to_ask_is_not_asked(reader: Reader, registry: str) -> None:
    with pytest.raises(PmlError) as caught:
        await reader.find(registry)
    assert isinstance(caught.value, Invalid)


# --- what it costs


def test_a_look_into_the_cache_imports_no_http_client() -> None:
    script = """
import sys
import pml.registry.client.sources
heavy = {"httpx2", "httpcore2", "starlette", "uvicorn", "http.client"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


async def test_metadata_may_have_a_json_type_of_its_own(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded(), kind="application/vnd.pml+json"), form=JSON)
    assert await reader.find(liar.url) == GREET
