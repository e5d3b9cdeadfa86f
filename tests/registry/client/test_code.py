"""Code comes verified: by the hash that its metadata names, or by its first use."""

from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import Changed, IntegrityFailed, Invalid, NotFound, Unavailable
from pml.registry.client.lookups import FRESH_S
from tests.promises import promise
from tests.registry.liar import JSON, TYPESCRIPT, Liar, body, redirect
from tests.registry.places import CODE, GREET, Reader, encoded, fill, hash_of
from tests.registry.serving import serving

ENTRY = f"/mcp/{GREET}"
OTHER = b"export function greet() { steal() }\n"


def offer(liar: Liar, code: bytes, **more: Any) -> None:
    liar.say(ENTRY, body(encoded(**more)), form=JSON)
    liar.say(ENTRY, body(code, kind=TYPESCRIPT), form=TYPESCRIPT)


async def test_code_comes_from_the_real_server_once(reader: Reader, tmp_path: Path) -> None:
    async with serving(fill(tmp_path / "registry", code_integrity=hash_of(CODE))) as served:
        assert await reader.code(served.url) == CODE
        assert await reader.code(served.url) == CODE
        assert len(served.lines) == 2
    reader.clock.advance(10 * FRESH_S)
    assert await reader.code(served.url) == CODE


@promise("registry:second-call-silent")
async def test_code_that_its_hash_proves_is_never_fetched_again(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE, code_integrity=hash_of(CODE))
    for _ in range(3):
        assert await reader.code(liar.url) == CODE
        reader.clock.advance(FRESH_S)
    assert [asked.form for asked in liar.asked] == [JSON, TYPESCRIPT, JSON, JSON]


@promise("registry:no-lies")
async def test_code_that_is_not_what_the_metadata_names_is_refused(reader: Reader, liar: Liar) -> None:
    offer(liar, OTHER, code_integrity=hash_of(CODE))
    with pytest.raises(IntegrityFailed, match=f"Integrity check failed for {GREET}"):
        await reader.code(liar.url)
    offer(liar, CODE, code_integrity=hash_of(CODE))
    assert await reader.code(liar.url) == CODE


async def test_code_and_hash_that_were_published_since_are_taken_together(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE, code_integrity=hash_of(CODE))
    await reader.find(liar.url)
    offer(liar, OTHER, code_integrity=hash_of(OTHER))
    with pytest.raises(IntegrityFailed):
        await reader.code(liar.url)
    assert await reader.code(liar.url) == OTHER


async def test_code_that_is_kept_but_no_longer_named_is_fetched_anew(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE, code_integrity=hash_of(CODE))
    await reader.code(liar.url)
    offer(liar, OTHER, code_integrity=hash_of(OTHER))
    reader.clock.advance(FRESH_S)
    assert await reader.code(liar.url) == OTHER


@promise("code:pinned")
async def test_code_without_a_hash_is_pinned_on_first_use(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE)
    assert await reader.code(liar.url) == CODE
    offer(liar, OTHER)
    assert await reader.code(liar.url) == CODE
    reader.clock.advance(FRESH_S)
    reader.fresh()
    with pytest.raises(Changed, match="has changed"):
        await reader.code(liar.url)


@promise("code:pinned")
async def test_a_pin_outlives_the_cache(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE)
    await reader.code(liar.url)
    for path in (reader.home / "cache" / "registry").iterdir():
        path.unlink()
    offer(liar, OTHER)
    with pytest.raises(Changed):
        await reader.code(liar.url)


async def test_a_person_who_removes_the_pin_takes_the_new_code(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE)
    await reader.code(liar.url)
    offer(liar, OTHER)
    (pin,) = (reader.home / "pins" / "code").iterdir()
    pin.unlink()
    assert await reader.code(liar.url) == OTHER


@promise("code:pinned")
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff"])
async def test_a_pin_that_cannot_be_read_stops_the_code(reader: Reader, liar: Liar, content: bytes) -> None:
    offer(liar, CODE)
    await reader.code(liar.url)
    (pin,) = (reader.home / "pins" / "code").iterdir()
    pin.write_bytes(content)
    with pytest.raises(Invalid, match="pin"):
        await reader.code(liar.url)


@promise("code:pinned")
async def test_code_that_cannot_be_pinned_is_not_given(reader: Reader, liar: Liar) -> None:
    reader.home.mkdir()
    (reader.home / "pins").write_text("a file in its place")
    offer(liar, CODE)
    with pytest.raises(Unavailable, match="Not a directory"):
        await reader.code(liar.url)


@promise("code:pinned")
async def test_code_in_a_folder_is_pinned_and_verified_too(reader: Reader, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    assert await reader.code(str(folder)) == CODE
    fill(folder, code=OTHER)
    with pytest.raises(Changed):
        await reader.code(str(folder))
    fill(folder, code=OTHER, code_integrity=hash_of(CODE))
    with pytest.raises(IntegrityFailed):
        await reader.code(str(folder))


@promise("code:pinned")
async def test_a_hash_that_is_added_later_does_not_lift_the_pin(reader: Reader, tmp_path: Path) -> None:
    folder = fill(tmp_path / "registry")
    assert await reader.code(str(folder)) == CODE

    fill(folder, code=OTHER, code_integrity=hash_of(OTHER))

    with pytest.raises(Changed):
        await reader.code(str(folder))


async def test_a_page_in_the_place_of_code_is_refused_and_not_pinned(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE)
    liar.say(ENTRY, body(b"<html>", kind="text/html"), form=TYPESCRIPT)
    with pytest.raises(Invalid, match="text/html"):
        await reader.code(liar.url)
    assert not (reader.home / "pins").exists()


async def test_code_may_be_elsewhere_in_the_registry(reader: Reader, liar: Liar) -> None:
    offer(liar, OTHER, code_url="code/greet.ts", code_integrity=hash_of(CODE))
    liar.say("/code/greet.ts", body(CODE, kind="text/plain"))
    assert await reader.code(liar.url) == CODE


@promise("registry:redirects-stay-safe")
async def test_code_is_not_fetched_from_anywhere(reader: Reader, liar: Liar) -> None:
    offer(liar, CODE, code_url="http://192.0.2.1/greet.ts")
    with pytest.raises(Invalid, match="plain http"):
        await reader.code(liar.url)
    offer(liar, CODE)
    liar.say(ENTRY, redirect("http://192.0.2.1/greet.ts"), form=TYPESCRIPT)
    reader.clock.advance(FRESH_S)
    with pytest.raises(Invalid, match="plain http"):
        await reader.code(liar.url)


async def test_missing_code_is_told(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded()), form=JSON)
    with pytest.raises(NotFound, match="application/typescript"):
        await reader.code(liar.url)


async def test_a_server_has_no_code(reader: Reader, liar: Liar) -> None:
    liar.say(ENTRY, body(encoded(type="server")), form=JSON)
    with pytest.raises(Invalid, match="has no code"):
        await reader.code(liar.url)
