"""The registry server: every form under one URL, read-only, and no way to any other file."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from pml.web.connections import Limits
from tests.promises import promise
from tests.registry.places import CODE, GREET, encoded, fill
from tests.registry.serving import TIMEOUT_S, serving

ENTRY = f"/mcp/{GREET}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A registry whose folder also holds, and lies beside, what is nobody's business."""
    folder = fill(tmp_path / "registry")
    fill(folder, "acme.tools.snake", code=None, type="python")
    (folder / "acme.tools.snake.py").write_text("def run(): ...\n")
    (folder / "acme.tools.snake.ts").write_text("hunter2\n")
    (folder / "package.json").write_text('{"password": "hunter2"}')
    (folder / "setup.py").write_text("hunter2\n")
    (folder / "acme.tools.alone.ts").write_text("hunter2\n")
    (folder / "acme.tools.wrong.json").write_bytes(encoded("acme.tools.other"))
    (folder / "secret").write_text("hunter2\n")
    (tmp_path / "secret.json").write_bytes(encoded("acme.tools.secret", description="hunter2"))
    (folder / "acme.tools.secret.json").symlink_to(tmp_path / "secret.json")
    fill(folder, "acme.tools.linked", code=None)
    (folder / "acme.tools.linked.ts").symlink_to(tmp_path / "secret.json")
    return folder


def contents(folder: Path) -> list[tuple[str, bytes]]:
    return sorted((path.name, path.read_bytes()) for path in folder.iterdir())


async def test_each_form_has_its_type_its_etag_and_says_that_it_varies(folder: Path) -> None:
    async with serving(folder) as served:
        answers = [
            await served.get(ENTRY),
            await served.get(ENTRY, accept="application/json"),
            await served.get(ENTRY, accept="application/typescript"),
            await served.get("/mcp/acme.tools.snake", accept="text/x-python"),
        ]
        assert [answer.status for answer in answers] == [200] * 4
        assert [answer.headers["content-type"] for answer in answers] == [
            "application/json",
            "application/json",
            "application/typescript",
            "text/x-python",
        ]
        assert [answer.body for answer in answers[1:3]] == [encoded(), CODE]
        assert {answer.headers["vary"] for answer in answers} == {"Accept"}
        assert answers[1].headers["etag"] != answers[2].headers["etag"]
        for answer in answers[1:3]:
            again = await served.get(
                ENTRY, accept=answer.headers["content-type"], if_none_match=answer.headers["etag"]
            )
            assert (again.status, again.body) == (304, b"")
            assert (again.headers["etag"], again.headers["vary"]) == (answer.headers["etag"], "Accept")


async def test_a_head_request_tells_the_same_without_a_body(folder: Path) -> None:
    async with serving(folder) as served:
        whole = await served.get(ENTRY)
        head = await served.get(ENTRY, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    for key in ("content-type", "content-length", "etag", "vary"):
        assert head.headers[key] == whole.headers[key]


async def test_a_form_that_there_is_not_is_refused_as_json(folder: Path) -> None:
    async with serving(folder) as served:
        for accept in ("text/html", "text/x-python"):
            answer = await served.get(ENTRY, accept=accept)
            assert (answer.status, answer.json["error"]["code"]) == (406, "not_acceptable")
            assert "application/typescript" in answer.json["error"]["message"]
            assert answer.headers["vary"] == "Accept"


@promise("cloud:read-only")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_nothing_but_reading_is_allowed(folder: Path, method: str) -> None:
    before = contents(folder)
    async with serving(folder) as served:
        answer = await served.get(ENTRY, method=method)
    assert (answer.status, answer.json["error"]["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert contents(folder) == before


@promise("cloud:read-only")
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/mcp",
        "/mcp/",
        "/mcp/nothing",
        "/mcp/acme.tools.nothing",
        "/mcp/..%2fsecret",
        "/mcp/..%2fsecret.json",
        "/mcp/%2e%2e%2fsecret",
        "/mcp/../secret.json",
        "/mcp/..",
        "/mcp/.",
        "/mcp/%00",
        f"{ENTRY}%00",
        f"{ENTRY}%0a",
        f"{ENTRY}/",
        f"{ENTRY}.json",
        f"{ENTRY}.ts",
        "/mcp/%2fetc%2fpasswd",
        "/mcp//etc/passwd",
        "//etc/passwd",
        "/mcp/..%5csecret",
        "/mcp/..%c0%afsecret",
        "/mcp/%252e%252e%252fsecret",
        "/mcp/secret",
        "/mcp/package",
        "/mcp/setup",
        "/mcp/acme.tools.alone",
        "/mcp/acme.tools.wrong",
        "/mcp/acme.tools.secret",
        "/mcp/*",
        "/mcp/.pml-publish",
        "/" + "a" * 5000,
    ],
)
async def test_no_path_leads_to_anything_but_an_entry(folder: Path, path: str) -> None:
    async with serving(folder) as served:
        for accept in ("*/*", "application/typescript", "text/x-python"):
            answer = await served.get(path, accept=accept)
            assert answer.status == 404
            assert set(answer.json) == {"error"}
            assert b"hunter2" not in answer.body


@promise("cloud:read-only")
@pytest.mark.parametrize("name", ["acme.tools.linked", "acme.tools.snake"])
async def test_code_is_served_only_as_a_plain_file_of_the_entrys_own_language(
    folder: Path, name: str
) -> None:
    async with serving(folder) as served:
        answer = await served.get(f"/mcp/{name}", accept="application/typescript")
    assert answer.status in (404, 406)
    assert b"hunter2" not in answer.body


async def test_a_namespace_of_two_entries_is_told(folder: Path) -> None:
    fill(folder, "other.org.snake", type="python", code=None)
    async with serving(folder) as served:
        answer = await served.get("/mcp/snake")
    assert (answer.status, answer.json["error"]["code"]) == (409, "conflict")


async def test_every_answer_has_the_security_headers(folder: Path) -> None:
    async with serving(folder) as served:
        answers = [await served.get(path) for path in (ENTRY, "/mcp/nothing", "/health", "/")]
        answers.append(await served.get(ENTRY, method="POST"))
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-cache"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert answers[2].json == {"status": "ok"}


async def test_a_web_page_cannot_reach_it_under_a_name_of_its_own(folder: Path) -> None:
    async with serving(folder) as served:
        hosts = ("evil.example", "127.0.0.1.evil.example", "evil.example@localhost", "localhost/a", "[", "")
        for host in hosts:
            assert (await served.get(ENTRY, host=host)).status in (400, 421)
        for host in ("localhost:1", "[::1]:80", "127.0.0.1"):
            assert (await served.get(ENTRY, host=host)).status == 200
    async with serving(folder, only_local=False) as served:
        assert (await served.get(ENTRY, host="registry.example")).status == 200


async def test_a_folder_that_is_gone_is_unavailable_and_tells_no_path(tmp_path: Path) -> None:
    async with serving(tmp_path / "gone") as served:
        answer = await served.get(ENTRY)
    assert (answer.status, answer.json["error"]["code"]) == (503, "unavailable")
    assert str(tmp_path).encode() not in answer.body


async def test_requests_can_be_watched(folder: Path) -> None:
    async with serving(folder) as served:
        await served.get(ENTRY)
        await served.get("/mcp/%1b[31m")
    assert served.lines[0] == f"registry: GET {ENTRY} 200"
    assert "\x1b" not in "".join(served.lines)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"POST / HTTP/1.1\r\nHost: a\r\n"])
async def test_whoever_sends_no_whole_request_is_not_waited_for(folder: Path, sent: bytes) -> None:
    async with serving(folder, limits=Limits(request_s=0.1)) as served, asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_served_one_request_is_not_held_for_half_of_the_next(folder: Path) -> None:
    async with serving(folder, limits=Limits(request_s=0.2)) as served, asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /hea")  # a byte that comes ends the shorter wait for the next request
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_one_peer_does_not_get_every_connection(folder: Path) -> None:
    async with (
        serving(folder, limits=Limits(connections=4, per_peer=2)) as served,
        asyncio.timeout(TIMEOUT_S),
    ):
        held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        reader, third = await asyncio.open_connection("127.0.0.1", served.port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        for writer in (third, *(writer for _, writer in held)):
            writer.close()
        for _, writer in held:
            await writer.wait_closed()
        while True:  # until the server has seen them go
            with contextlib.suppress(ConnectionError, IndexError):
                assert (await served.get("/health")).status == 200
                break
