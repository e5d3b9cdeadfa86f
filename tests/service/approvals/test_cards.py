"""A question becomes a card: who asks, where, what the files hold now, and what an answer would do."""

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from pml.core.approvals.record import Approval, SessionId, Subject
from pml.core.cards.card import Ancestor, Arguments, Card, Code, Command, Covered, Diff, Fact, Facts
from pml.core.cards.files import Present
from pml.core.config.file import FileKind
from pml.core.errors import Unavailable
from pml.core.ports.records import Pin
from pml.core.servers.manifest import Manifest, definition_digest, definition_of
from pml.core.values import JsonObject
from pml.service.approvals.cards import card, cards
from tests.builders import NOW, make_order, make_run
from tests.contract.journals import RUN, make_code_run
from tests.core.cards.test_diffs import drawn
from tests.promises import promise
from tests.service.offices import BOUND_S, Office

TOOL: JsonObject = {
    "name": "add",
    "description": "Adds a note. And more.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
LAUNCH = "sha256:launch"


async def whole(office: Office, record: Approval) -> Card:
    """Return the whole card, in time."""
    async with asyncio.timeout(BOUND_S):
        return await card(office.context, record, whole=True)


async def shown_diff(office: Office, path: str | Path) -> Diff:
    """Return what a write of one line to that path is shown as."""
    record = await office.ask("Write", {"file_path": str(path), "content": "new\n"})
    found = (await whole(office, record)).blocks[0]
    assert isinstance(found, Diff)
    return found


@promise("card:diff-against-file")
async def test_a_write_is_shown_against_the_file_as_it_is_now(office: Office) -> None:
    (office.workspace / "notes.txt").write_text("old\n")
    shown = await shown_diff(office, "notes.txt")
    assert (shown.title, shown.note, drawn(shown.lines)) == ("notes.txt", None, ["-old", "+new"])
    (office.workspace / "notes.txt").write_text("other\n")
    assert drawn((await shown_diff(office, "notes.txt")).lines) == ["-other", "+new"]


@promise("card:reads-only-files")
async def test_no_file_that_an_agent_names_hangs_or_leaks(office: Office) -> None:
    os.mkfifo(office.workspace / "pipe")
    (office.home / "secret.txt").write_text("the key")
    (office.workspace / "link").symlink_to(office.home)
    for path in ("pipe", "/dev/zero", office.home / "secret.txt", "link/secret.txt", "x" * 5000):
        shown = await shown_diff(office, path)
        assert drawn(shown.lines) == ["+new"]
        assert "what is written is shown without it" in (shown.note or "")


@promise("card:reads-only-files")
async def test_a_disk_that_hangs_does_not_keep_the_question_from_being_seen(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def hang(path: str, *, forbidden: str) -> Present:
        released.wait(BOUND_S)
        return Present(path=path, text=forbidden)

    monkeypatch.setattr("pml.service.approvals.cards.read_text", hang)
    monkeypatch.setattr("pml.service.approvals.cards._READ_S", 0.01)
    record = await office.ask("Write", {"file_path": "notes.txt", "content": "new\n"})
    shown = await whole(office, record)
    released.set()
    assert any("could not be laid out in time" in warning for warning in shown.warnings)
    assert [block for block in shown.blocks if isinstance(block, Diff)] == []


async def test_a_question_that_cannot_be_laid_out_is_shown_plainly_and_hides_no_other(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, *, forbidden: str) -> Present:
        raise MemoryError

    monkeypatch.setattr("pml.service.approvals.cards.read_text", fail)
    odd = await office.ask("Write", {"file_path": "notes.txt", "content": "new\n"})
    other = await office.ask("Bash", {"command": "ls"})
    shown = await cards(office.context, [odd, other])
    assert [each.id for each in shown] == [odd.id, other.id]
    assert any("could not be laid out" in warning for warning in shown[0].warnings)
    assert (shown[0].cut, shown[1].cut, shown[1].warnings) == (True, False, ())


async def test_a_question_whose_card_cannot_be_made_hides_no_other_and_is_never_whole(
    office: Office,
) -> None:
    good, bad = await office.ask(arguments={"n": 1}), await office.ask(arguments={"n": 2})
    nobodys = msgspec.structs.replace(bad, session_id=SessionId("gone\u202e"))

    shown = await cards(office.context, [good, nobodys])

    assert shown[0] == (await cards(office.context, [good]))[0]
    assert (shown[1].id, shown[1].digest, shown[1].cut) == (bad.id, bad.digest, True)
    assert (shown[1].input, shown[1].always, shown[1].remember) == (None, None, None)
    assert f"`pml approvals show {bad.id}`" in shown[1].warnings[0]
    assert "\u202e" not in str(msgspec.to_builtins(shown[1]))


async def test_a_store_that_is_busy_is_not_taken_for_cards_that_cannot_be_made(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await office.ask()

    async def busy(session_id: SessionId) -> None:
        raise Unavailable("the store is busy")

    monkeypatch.setattr(office.context.store.sessions, "get", busy)

    with pytest.raises(Unavailable):
        await cards(office.context, [record])


async def test_relative_paths_begin_where_the_agent_was_launched(office: Office) -> None:
    session = await office.session()
    sub = office.workspace / "sub"
    sub.mkdir()
    (sub / "notes.txt").write_text("old\n")
    order = msgspec.structs.replace(make_order(), cwd=str(sub))
    await office.context.store.runs.add(make_run(session.id, order=order))
    record = await office.ask("Write", {"file_path": "notes.txt", "content": "new\n"})
    told, diff = (await whole(office, record)).blocks[:2]
    assert told == Facts(rows=(Fact(name="made in", value=str(sub)),))
    assert isinstance(diff, Diff)
    assert (diff.title, drawn(diff.lines)) == ("sub/notes.txt", ["-old", "+new"])
    command = (await whole(office, await office.ask("Bash", {"command": "ls"}))).blocks[0]
    assert isinstance(command, Command)
    assert command.cwd == str(sub)


async def test_relative_paths_begin_where_the_call_says_that_it_is_made(office: Office) -> None:
    record = msgspec.structs.replace(await office.ask("Bash", {"command": "ls"}), cwd="/elsewhere")
    command = (await whole(office, record)).blocks[0]
    assert isinstance(command, Command)
    assert command.cwd == "/elsewhere"


@promise("card:path-and-folder")
async def test_a_folder_that_leads_out_of_the_workspace_is_told_as_the_one_it_is(
    office: Office, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (office.workspace / "link").symlink_to(outside)
    asked = await office.ask("Write", {"file_path": "a", "content": "new\n"})
    shown = await whole(office, msgspec.structs.replace(asked, cwd=str(office.workspace / "link")))
    assert shown.sentence == f"Write 1 line to new file {outside}/a"
    assert shown.warnings == (f"it would be made in {outside}, outside of the workspace",)
    inside = tmp_path / "inside"
    inside.symlink_to(office.workspace)
    shown = await whole(office, msgspec.structs.replace(asked, cwd=str(inside)))
    assert (shown.sentence, shown.warnings) == ("Write 1 line to new file a", ())


@promise("card:path-and-folder")
async def test_a_file_that_a_link_leads_out_of_the_workspace_is_shown_with_its_whole_path(
    office: Office, tmp_path: Path
) -> None:
    (office.workspace / "link").symlink_to(tmp_path)
    shown = await shown_diff(office, "link/a")
    assert shown.title == f"{office.workspace}/link/a"
    assert shown.note == f"leads to {tmp_path}/a; new file"


async def test_a_name_of_a_session_is_bounded(office: Office) -> None:
    long = await office.session(SessionId("l" * 5000))
    shown = await whole(office, await office.ask(session=long))
    assert shown.lineage[0].name == shown.session_name == "l" * 299 + "…"


async def test_the_lineage_goes_from_whom_nobody_started_to_whoever_asks(office: Office) -> None:
    await office.session(SessionId("top"))
    await office.session(SessionId("mid\u202e"), parent_id=SessionId("top"), is_agent=False)
    asking = await office.session(SessionId("kid"), parent_id=SessionId("mid\u202e"))
    await office.context.store.sessions.end(SessionId("top"), at=NOW)
    shown = await whole(office, await office.ask(session=asking))
    assert shown.lineage == (
        Ancestor(id=SessionId("top"), name="top", is_agent=True, has_ended=True),
        Ancestor(id=SessionId("mid\u202e"), name="mid\\u{202e}", is_agent=False, has_ended=False),
        Ancestor(id=SessionId("kid"), name="kid", is_agent=True, has_ended=False),
    )


async def test_a_lineage_that_is_too_long_is_bounded(office: Office) -> None:
    parent: SessionId | None = None
    for number in range(30):
        session = await office.session(SessionId(f"s{number}"), parent_id=parent)
        parent = session.id
    shown = await whole(
        office, await office.ask(session=await office.session(SessionId("last"), parent_id=parent))
    )
    assert (len(shown.lineage), shown.lineage[-1].id) == (16, "last")


async def ask_add(office: Office, *, definition: str | None) -> Approval:
    return await office.ask("notes:add", {"text": "x"}, definition=definition, artefact=LAUNCH)


async def test_the_words_and_the_schema_are_those_of_the_pinned_tool(office: Office) -> None:
    digest = definition_digest(TOOL)
    pin = Pin(
        server="notes",
        target_digest=LAUNCH,
        action="add",
        definition=definition_of(TOOL),
        digest=digest,
        pinned_at=NOW,
    )
    await office.context.store.pins.put(pin, by=None)
    shown = await whole(office, await ask_add(office, definition=digest))
    assert (shown.sentence, shown.quoted, shown.schema) == ("Adds a note.", True, TOOL["inputSchema"])


@promise("card:words-of-this-tool")
async def test_words_of_a_tool_that_has_changed_since_are_not_those_of_the_question(office: Office) -> None:
    manifest = Manifest(server="notes", target_digest=LAUNCH, capabilities={}, tools=(TOOL,))
    await office.context.store.manifests.put(manifest)
    same = await whole(office, await ask_add(office, definition=definition_digest(TOOL)))
    assert (same.sentence, same.quoted) == ("Adds a note.", True)
    other = await whole(office, await ask_add(office, definition="sha256:of another"))
    assert (other.sentence, other.quoted, other.schema) == ("Call notes:add", False, None)


async def test_the_code_that_makes_a_call_is_shown(office: Office) -> None:
    record = await office.ask()
    await office.context.store.journals.start(make_code_run())
    shown = await whole(office, msgspec.structs.replace(record, run_id=RUN))
    assert shown.blocks[-1] == Code(
        title="the code that makes this call", language="typescript", lines=(("return 1",),)
    )


async def test_what_always_would_let_run_too_is_told_on_a_whole_card_only(office: Office) -> None:
    one, other = await office.ask(arguments={"n": 1}), await office.ask(arguments={"n": 2})
    shown = await whole(office, one)
    assert shown.covers == (
        Covered(
            id=other.id,
            tool="github:create_issue",
            sentence="Call github:create_issue",
            glimpse='{"n": 2}',
        ),
    )
    assert (await card(office.context, one, whole=False)).covers == ()


@pytest.mark.parametrize("tool", ["pml:session_launch", "pml:call", "pml:execute"])
async def test_every_tool_of_pmls_own_has_a_card(office: Office, tool: str) -> None:
    shown = await whole(office, await office.ask(tool, {"prompt": "x", "code": "1"}))
    assert (shown.always is None) == (tool != "pml:execute")


async def test_always_tells_its_file_and_when_that_counts(office: Office) -> None:
    fresh = await whole(office, await office.ask())
    assert fresh.always is not None
    assert (fresh.always.file, fresh.always.note) == (str(office.path(FileKind.WORKSPACE)), None)
    office.write_rules(FileKind.WORKSPACE, allow=["x:*"])
    untrusted = await whole(office, await office.ask(arguments={"n": 1}))
    assert untrusted.always is not None
    assert untrusted.always.note == f"it applies once {office.path(FileKind.WORKSPACE)} is trusted"
    await office.trust()
    trusted = await whole(office, await office.ask(arguments={"n": 2}))
    assert trusted.always is not None
    assert trusted.always.note is None


async def test_a_broken_file_is_warned_of(office: Office) -> None:
    record = await office.ask()
    office.path(FileKind.USER).write_text("{")
    (warning,) = (await whole(office, record)).warnings
    assert warning.endswith("until it is fixed its denies are unknown")


async def test_a_question_about_trust_has_its_facts(office: Office) -> None:
    facts: JsonObject = {"path": "/w/.pml.json", "digest": "d", "allows": [], "launches": []}
    record = await office.ask("pml:trust", facts, subject=Subject.WORKSPACE_TRUST)
    shown = await whole(office, record)
    assert (shown.title, shown.always, shown.remember) == ("Trust this workspace's .pml.json", None, None)


async def test_a_page_of_cards_is_in_order_and_each_is_the_card_by_itself(office: Office) -> None:
    (office.workspace / "notes.txt").write_text("old\n")
    records: Sequence[Approval] = [
        await office.ask("Bash", {"command": "ls"}),
        await office.ask("Write", {"file_path": "notes.txt", "content": "x" * 100_000}),
        await office.ask(),
    ]
    page = await cards(office.context, records)
    assert page == [await card(office.context, record, whole=False) for record in records]
    assert [each.cut for each in page] == [False, True, False]


@promise("card:nothing-hidden")
async def test_a_hostile_megabyte_is_shown_whole(office: Office) -> None:
    text = "<script>\u202e\x1b[2J" + "x" * 1_000_000
    shown = await whole(office, await office.ask("notes:add", {"text": text}))
    assert shown.hidden == 2
    (arguments,) = shown.blocks
    assert isinstance(arguments, Arguments)
    assert arguments.lines[1] == '  "text": "<script>\\u202e\\u001b[2J' + "x" * 1_000_000 + '"'
    assert not (await card(office.context, await office.ask(), whole=False)).cut
