"""The cache on disk stays small: no misses, nothing that nobody used for long, no more than the most."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from pml.registry.client import cache
from pml.registry.client.cache import MAX_MISSES, UNUSED_S, Answered, Cache, Key
from pml.registry.entry_forms import EntryName, Form
from tests.fakes import FakeClock
from tests.registry.liar import Liar, body
from tests.registry.places import GREET, Reader, encoded

BODY = b"{}"


def key(name: str) -> Key:
    return Key(registry="https://registry.example", name=EntryName(name), form=Form.METADATA)


def answer(name: str, *, content: bytes | None = BODY) -> Answered:
    sha256 = None if content is None else hashlib.sha256(content).hexdigest()
    return Answered(key=key(name), fetched_at=FakeClock().now(), etag=None, sha256=sha256)


def files(home: Path) -> list[str]:
    place = home / "cache" / "registry"
    return sorted(os.listdir(place)) if place.exists() else []


def age(home: Path, by_s: float) -> None:
    """Let all that is kept be `by_s` seconds older."""
    for name in files(home):
        path = home / "cache" / "registry" / name
        os.utime(path, (time.time() - by_s, time.time() - by_s))


def new_cache(home: Path) -> Cache:
    """Return the cache as another process has it."""
    return Cache(home, debug=lambda _: None)


async def test_names_that_do_not_exist_leave_no_files(reader: Reader, liar: Liar) -> None:
    assert await reader.find(liar.url) is None
    assert files(reader.home) == []
    assert await reader.find(liar.url) is None
    assert len(liar.asked) == 2  # once by each name: the miss is remembered all the same


def test_misses_in_memory_are_bounded(home: Path) -> None:
    kept = new_cache(home)
    for number in range(MAX_MISSES + 1):
        kept.store(answer(f"n{number}", content=None), b"")
    assert kept.load(key("n0")) is None
    assert kept.load(key(f"n{MAX_MISSES}")) is not None


def test_a_miss_takes_the_place_of_what_was_there(home: Path) -> None:
    kept = new_cache(home)
    kept.store(answer("a"), BODY)
    kept.store(answer("a", content=None), b"")
    assert files(home) == []
    assert kept.load(key("a")) == (answer("a", content=None), b"")
    kept.store(answer("a"), BODY)
    assert kept.load(key("a")) == (answer("a"), BODY)


def test_what_nobody_used_for_long_is_removed(home: Path) -> None:
    new_cache(home).store(answer("old"), BODY)
    age(home, UNUSED_S + 60)
    kept = new_cache(home)
    kept.store(answer("new"), BODY)
    assert kept.load(key("old")) is None
    assert len(files(home)) == 2


def test_what_is_used_now_and_then_stays(home: Path) -> None:
    new_cache(home).store(answer("old"), BODY)
    age(home, UNUSED_S + 60)
    assert new_cache(home).load(key("old")) is not None
    kept = new_cache(home)
    kept.store(answer("new"), BODY)
    assert kept.load(key("old")) == (answer("old"), BODY)


def test_of_more_than_the_most_the_oldest_are_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 2)
    for number in range(3):
        kept = new_cache(home)
        kept.store(answer(f"n{number}"), BODY)
        age(home, (3 - number) * 10)
    kept = new_cache(home)
    kept.store(answer("n3"), BODY)
    assert len(files(home)) == 4
    assert kept.load(key("n3")) is not None


def test_a_body_without_an_index_is_removed_unless_it_is_being_written(home: Path) -> None:
    new_cache(home).store(answer("a"), BODY)
    [index] = [name for name in files(home) if name.endswith(".json")]
    (home / "cache" / "registry" / index).unlink()
    new_cache(home).store(answer("b"), BODY)
    assert len(files(home)) == 3
    age(home, 3600)
    new_cache(home).store(answer("b"), BODY)
    assert len(files(home)) == 2


async def test_another_process_out_of_reach_uses_what_is_known_of_the_namespace(
    reader: Reader, liar: Liar
) -> None:
    liar.say("/mcp/text", body(encoded("acme.tools.text")))
    assert await reader.find(liar.url) == "acme.tools.text"
    liar.say(f"/mcp/{GREET}", body(b"", status="500 Oops"))
    reader.fresh()
    assert await reader.find(liar.url) == "acme.tools.text"
