"""Every key that decides does so for the focused card, and for no other."""

import asyncio
import json

import pytest
from textual.widgets import TextArea

from pml.core.approvals.record import (
    ApprovalId,
    Channel,
    Decider,
    DeciderKind,
    Scope,
    State,
    Subject,
    call_facts,
)
from pml.core.config.file import FileKind
from pml.core.ports.records import Pin
from pml.core.servers.manifest import definition_digest, definition_of
from pml.core.values import JsonObject
from pml.screen.answers.decide import Given, give
from pml.service.approvals.lifecycle import Decision
from pml.service.context import Context
from tests.builders import FORM, NOW
from tests.promises import promise
from tests.screen.seats import NARROW, seated
from tests.service.offices import Office

LAUNCH = "sha256:launch"
ADD: JsonObject = {
    "name": "add",
    "description": "Adds a note.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


async def test_return_allows_exactly_what_has_the_focus(office: Office) -> None:
    first = await office.ask("github:create_issue", {"title": "one"})
    second = await office.ask("github:create_issue", {"title": "two"})
    async with seated(office) as seat:
        await seat.press("enter")
        await seat.shows("allowed github:create_issue")
        assert await office.status(first) is State.ALLOWED
        assert await office.status(second) is State.PENDING
        assert seat.inbox.stream.focus == second.id
    stored = await office.stored(first)
    assert stored.decided_by is not None
    assert stored.decided_by.id == "ana"


async def test_escape_denies(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("escape")
        await seat.shows("denied github:create_issue", "u undoes")
        assert await office.status(record) is State.PENDING
        await seat.send_held()
        await seat.until(lambda: "u undoes" not in seat.screen())
    assert await office.status(record) is State.DENIED


async def test_a_message_goes_to_the_agent_with_the_denial(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("m", *"no", "enter")
        await seat.shows("denied github:create_issue with your message")
        await seat.send_held()
    stored = await office.stored(record)
    assert (stored.status, stored.response_message) == (State.DENIED, "no")


async def test_escape_in_a_dialog_closes_it_and_denies_nothing(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        for key in ("m", "e", "a", "A", "D", "slash", "question_mark", "h"):
            await seat.press(key)
            await seat.until(lambda: len(seat.app.screen_stack) == 3)
            await seat.press("escape")
            await seat.until(lambda: len(seat.app.screen_stack) == 2)
            await seat.settled()
    assert await office.status(record) is State.PENDING


async def test_an_edit_is_what_runs(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("e")
        await seat.shows("edit the arguments")
        editor = seat.app.screen.query_one("#editor")
        editor.text = '{"title": "mended"}'  # pyright: ignore[reportAttributeAccessIssue]
        await seat.press("ctrl+s")
        await seat.shows("allowed github:create_issue")
    stored = await office.stored(record)
    assert (stored.status, stored.updated_input) == (State.ALLOWED, {"title": "mended"})


@promise("screen:edit-judged")
async def test_an_edit_that_a_deny_rule_names_is_refused_and_can_be_mended(office: Office) -> None:
    record = await office.ask()
    office.write_rules(deny=[{"tool": "github:create_issue", "args": {"title": {"is": "evil"}}}])
    async with seated(office) as seat:
        await seat.press("e")
        await seat.shows("edit the arguments")
        editor = seat.app.screen.query_one("#editor")
        editor.text = '{"title": "evil"}'  # pyright: ignore[reportAttributeAccessIssue]
        await seat.press("ctrl+s")
        await seat.shows("denied by", "edit the arguments")
        assert await office.status(record) is State.PENDING
        editor.text = '{"title": \n}'  # pyright: ignore[reportAttributeAccessIssue]
        await seat.press("ctrl+s")
        await seat.shows("line 2, column 1")
        assert await office.status(record) is State.PENDING


async def test_an_edit_that_does_not_fit_the_tools_schema_is_told_and_sent_only_when_sent_again(
    office: Office,
) -> None:
    definition = definition_of(ADD)
    digest = definition_digest(ADD)
    pin = Pin(
        server="notes",
        target_digest=LAUNCH,
        action="add",
        definition=definition,
        digest=digest,
        pinned_at=NOW,
    )
    await office.context.store.pins.put(pin, by=None)
    record = await office.ask("notes:add", {"text": "x"}, definition=digest, artefact=LAUNCH)
    async with seated(office) as seat:
        await seat.press("e")
        await seat.shows("edit the arguments")
        seat.app.screen.query_one(TextArea).text = '{"text": 5}'
        await seat.press("ctrl+s")
        await seat.shows("`text` must be a string", "Ctrl+S again sends it all the same")
        assert await office.status(record) is State.PENDING
        await seat.press("ctrl+s")
        await seat.shows("allowed notes:add")
    assert (await office.stored(record)).updated_input == {"text": 5}


async def test_while_an_answer_is_on_its_way_no_other_is_given(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await office.ask()
    given: list[Decision] = []
    may_go = asyncio.Event()

    async def slow(context: Context, approval_id: ApprovalId, decision: Decision) -> Given:
        given.append(decision)
        await may_go.wait()
        return await give(context, approval_id, decision)

    monkeypatch.setattr("pml.screen.answers.answer.give", slow)
    async with seated(office) as seat:
        await seat.press("enter")
        await seat.until(lambda: len(given) == 1)
        await seat.press("escape")
        await seat.until(lambda: seat.inbox.strokes.held is None)
        await seat.turn()
        assert [decision.allow for decision in given] == [True]
        may_go.set()
        await seat.shows("allowed github:create_issue")
    assert await office.status(record) is State.ALLOWED


async def test_remembering_for_the_session_says_what_it_covers_and_grants_it(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("s")
        await seat.shows("Return will also allow, in this session:", "☑ this session")
        await seat.press("enter")
        await seat.shows("remembered for this session")
    assert (await office.stored(record)).scope is Scope.SESSION
    assert [grant.tool for grant in await office.context.store.grants.all()] == ["github:create_issue"]


async def test_always_shows_the_entry_and_the_file_before_it_writes(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await seat.press("a")
        await seat.shows("always allow github:create_issue?", "adds", office.path(FileKind.WORKSPACE).name)
        assert not office.path(FileKind.WORKSPACE).exists()
        await seat.press("enter")
        await seat.shows("added to")
    assert await office.status(record) is State.ALLOWED
    written = json.loads(office.path(FileKind.WORKSPACE).read_text())
    assert written["permissions"]["allow"] == ["github:create_issue"]


async def test_always_with_exactly_these_arguments_writes_the_narrow_entry(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await seat.press("a")
        await seat.shows("exactly these arguments")
        await seat.press("x")
        await seat.shows("added to")
    written = json.loads(office.path(FileKind.WORKSPACE).read_text())
    (entry,) = written["permissions"]["allow"]
    assert entry["args"]["title"] == {"is": "it is broken"}


async def test_always_releases_others_that_wait_only_when_told(office: Office) -> None:
    await office.ask(arguments={"title": "one"})
    other = await office.ask(arguments={"title": "two"})
    async with seated(office) as seat:
        await seat.press("a")
        await seat.shows("c also allows 1 waiting request")
        await seat.press("c")
        await seat.shows("1 more that waited were released")
    assert await office.status(other) is State.ALLOWED


@promise("screen:batch")
async def test_allow_all_lists_what_it_covers_and_reports_each(office: Office) -> None:
    records = [await office.ask(arguments={"title": str(n)}) for n in range(3)]
    async with seated(office) as seat:
        await seat.press("A")
        await seat.shows("allow these 3?", '{"title": "0"}', '{"title": "2"}')
        late = await office.ask(arguments={"title": "late"})
        await office.deny(records[1])
        await seat.press("enter")
        await seat.shows("allowed 2 of 3", "✓", "✗", "ana denied it")
    assert [await office.status(record) for record in records] == [
        State.ALLOWED,
        State.DENIED,
        State.ALLOWED,
    ]
    assert await office.status(late) is State.PENDING


async def test_deny_all_covers_only_what_the_search_finds(office: Office) -> None:
    kept = await office.ask("db:query", {"sql": "select 1"})
    found = await office.ask("github:create_issue", {"title": "one"})
    async with seated(office) as seat:
        await seat.press("slash", *"issue", "enter")
        await seat.shows("finds 1")
        await seat.press("D")
        await seat.shows("deny this one?")
        await seat.press("enter")
        await seat.shows("denied 1 of 1")
        await seat.send_held()
    assert (await office.status(kept), await office.status(found)) == (State.PENDING, State.DENIED)


async def test_alt_return_and_alt_escape_ask_about_all(office: Office) -> None:
    await office.ask()
    async with seated(office) as seat:
        await seat.press("alt+enter")
        await seat.shows("allow this one?")
        await seat.press("escape")
        await seat.press("alt+escape")
        await seat.shows("deny this one?")


@promise("screen:first-wins")
async def test_a_card_that_somebody_else_decided_says_who_and_takes_no_key(office: Office) -> None:
    record = await office.ask()
    other = await office.ask(arguments={"title": "two"})
    async with seated(office) as seat:
        await office.deny(record, by=FORM)
        await seat.shows("denied it 0 s ago")
        assert seat.inbox.stream.focus == record.id
        await seat.press("enter")
        await seat.shows("this one is settled")
        assert seat.inbox.stream.focus == record.id
    assert (await office.status(record), await office.status(other)) == (State.DENIED, State.PENDING)


@promise("screen:first-wins")
async def test_a_client_that_names_itself_after_the_person_is_told_as_a_client(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        await office.deny(record, by=Decider(kind=DeciderKind.CLIENT, id="ana", channel=Channel.MODEL))
        await seat.shows("the client `ana` (its model) denied it 0 s ago")


async def test_a_decision_that_comes_second_is_told_and_is_no_error(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        seat.inbox.stream.read = _nothing  # type: ignore[method-assign]  # it has not heard of it yet
        await office.allow(record)
        await seat.press("escape")
        await seat.send_held()
        await seat.shows("not decided here: ana allowed it 0 s ago")
        assert seat.inbox.stream.focused is not None
        assert not seat.inbox.stream.focused.waits
    assert await office.status(record) is State.ALLOWED


async def _nothing(*_: object, **__: object) -> bool:
    return False


async def test_a_question_that_expires_is_noticed_where_no_hub_runs(office: Office) -> None:
    record = await office.ask()
    async with seated(office) as seat:
        office.clock.advance(1000)
        await seat.press("enter")
        await seat.shows("expired")
    assert await office.status(record) is State.EXPIRED


async def test_a_key_that_a_server_needs_is_typed_unseen_and_stored(office: Office) -> None:
    asked: JsonObject = {"server": "github", "missing": ["GITHUB_TOKEN"], **call_facts("github:me", {})}
    await office.ask("github:create_issue", asked, subject=Subject.API_KEY_REQUIRED)
    stored: list[tuple[str, str]] = []
    async with seated(office, size=NARROW, store_key=stored.append) as seat:
        await seat.shows("p store the key")
        await seat.press("p")
        await seat.shows("value of")
        await seat.press(*"ghp")
        assert "ghp" not in seat.screen()
        await seat.press("enter")
        await seat.shows("stored GITHUB_TOKEN")
    assert stored == [("GITHUB_TOKEN", "ghp")]


async def test_q_leaves_with_0_and_ctrl_c_with_130_and_what_waits_goes_on_waiting(office: Office) -> None:
    record = await office.ask()
    for key, code in (("q", 0), ("ctrl+c", 130)):
        async with seated(office) as seat:
            await seat.press(key)
            await seat.until(lambda: not seat.app.is_running)
            assert seat.app.return_value == code
    assert await office.status(record) is State.PENDING
