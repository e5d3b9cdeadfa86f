"""`pml capability accept`: a person sees what has changed, and accepts that code and no other."""

import hashlib
from pathlib import Path

import pytest

from pml.core.errors import Changed
from pml.registry.client.code_pins import CodePins
from tests.builders import NOW
from tests.cli.terminals import on_terminal
from tests.commands import Pml
from tests.promises import promise
from tests.registry.places import CODE, GREET, Reader, fill, hash_of

OK, FAILED, USAGE, DENIED, PENDING, GONE = 0, 1, 2, 3, 4, 5
OTHER = b"export function greet() { return 'bye' }\n"


def sha256(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "registry")


@pytest.fixture
async def pins(folder: Path, pml_home: Path) -> CodePins:
    """The code was used once, and is another now."""
    assert await Reader(pml_home).code(str(folder)) == CODE
    fill(folder, code=OTHER)
    return CodePins(pml_home)


def pinned(pins: CodePins) -> list[str]:
    return [pin.sha256 for pin in pins.of(GREET)]


@promise("code:pinned")
async def test_changed_code_is_refused_with_the_way_to_accept_it_and_then_taken(
    pml_home: Path, folder: Path, pins: CodePins
) -> None:
    with pytest.raises(Changed) as refused:
        await Reader(pml_home).code(str(folder))
    assert f"`pml capability accept {GREET}`" in str(refused.value.hint)
    pins.replace(pins.of(GREET)[0], sha256=sha256(OTHER), pinned_at=NOW)
    assert await Reader(pml_home).code(str(folder)) == OTHER


def test_hashes_and_what_has_changed_are_shown_and_nobody_there_accepts_nothing(
    pml: Pml, pins: CodePins
) -> None:
    ran = pml("capability", "accept", GREET)
    assert ran.code == PENDING
    assert f"was  sha256 {sha256(CODE)}" in ran.out
    assert f"is   sha256 {sha256(OTHER)}" in ran.out
    assert (
        "  -export function greet() { return 'hello' }\n  +export function greet() { return 'bye' }"
        in ran.out
    )
    assert f"--sha256 {sha256(OTHER)}" in ran.err
    assert pml("capability", "accept", GREET, "--json").json["accepted"] is False
    assert pinned(pins) == [sha256(CODE)]


@pytest.mark.parametrize("words", [["--yes"], ["--sha256", sha256(OTHER)]])
def test_exactly_the_code_that_was_shown_is_accepted_and_that_is_on_record(
    pml: Pml, pins: CodePins, folder: Path, words: list[str]
) -> None:
    ran = pml("capability", "accept", GREET, *words, "--json")
    assert (ran.code, ran.json["accepted"], ran.json["was"], ran.json["sha256"]) == (
        OK,
        True,
        sha256(CODE),
        sha256(OTHER),
    )
    assert pinned(pins) == [sha256(OTHER)]
    with pytest.raises(Changed):
        pins.check(registry=str(folder), fqdn=GREET, code=b"what comes next")
    entries = pml("audit", "list", "--json").json["entries"]
    [entry] = [entry for entry in entries if entry["kind"] == "dependency.accepted"]
    assert entry["detail"] == {"name": GREET, "tree": f"sha256:{sha256(OTHER)}"}
    assert "nothing to accept" in pml("capability", "accept", GREET).out


@promise("code:pinned")
def test_other_code_than_the_one_named_is_not_accepted(pml: Pml, pins: CodePins) -> None:
    ran = pml("capability", "accept", GREET, "--sha256", "0" * 64)
    assert (ran.code, f"is sha256 {sha256(OTHER)} now" in ran.err) == (FAILED, True)
    assert pml("capability", "accept", GREET, "--sha256", "rubbish").code == USAGE
    assert pinned(pins) == [sha256(CODE)]


@pytest.mark.parametrize(("typed", "code", "kept"), [("y\n", OK, OTHER), ("\n", DENIED, CODE)])
def test_a_person_is_asked_on_a_terminal(pins: CodePins, typed: str, code: int, kept: bytes) -> None:
    with on_terminal("capability", "accept", GREET, stdout_too=True) as terminal:
        terminal.until("[y/N] ")
        terminal.type(typed)
        assert terminal.end()[0] == code
    assert pinned(pins) == [sha256(kept)]


def test_code_that_is_no_longer_kept_is_said_to_be_so(pml: Pml, pins: CodePins, pml_home: Path) -> None:
    for path in (pml_home / "cache" / "registry").iterdir():
        path.unlink()
    assert "no longer kept" in pml("capability", "accept", GREET).out


def test_where_the_registry_is_away_only_a_hash_is_accepted(pml: Pml, pins: CodePins, folder: Path) -> None:
    folder.rename(folder.with_name("away"))
    ran = pml("capability", "accept", GREET, "--yes")
    assert (ran.code, "--sha256 HASH" in ran.err) == (FAILED, True)
    assert pinned(pins) == [sha256(CODE)]
    assert pml("capability", "accept", GREET, "--sha256", sha256(OTHER)).code == OK
    assert pinned(pins) == [sha256(OTHER)]


def test_code_that_has_a_hash_now_needs_no_accepting(pml: Pml, pins: CodePins, folder: Path) -> None:
    fill(folder, code=OTHER, code_integrity=hash_of(OTHER))
    ran = pml("capability", "accept", GREET, "--yes")
    assert (ran.code, "has `code_integrity` now" in ran.err) == (FAILED, True)


def test_code_of_several_registries_is_accepted_from_the_one_that_is_named(
    pml: Pml, pins: CodePins, folder: Path, workspace: Path
) -> None:
    pins.add(registry="https://a.example.com", fqdn=GREET, code=CODE, pinned_at=NOW)
    ran = pml("capability", "accept", GREET, "--yes")
    assert (ran.code, "--registry" in ran.err) == (FAILED, True)
    assert pml("capability", "accept", GREET, "--yes", "--registry", "../registry").code == OK
    assert sorted(pinned(pins)) == sorted([sha256(CODE), sha256(OTHER)])
    assert pml("capability", "accept", "acme.tools.nothing", "--yes").code == GONE


@promise("agent:cannot-decide")
def test_an_agent_accepts_no_code(pml: Pml, agent: None, pins: CodePins) -> None:
    ran = pml("capability", "accept", GREET, "--yes")
    assert (ran.code, "an agent cannot decide for itself" in ran.err) == (FAILED, True)
    assert pinned(pins) == [sha256(CODE)]
