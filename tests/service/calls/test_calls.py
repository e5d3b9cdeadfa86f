"""The pipeline of a call: what runs, what asks, what refuses, and what is told of it."""

from typing import Any

import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import Approval, Scope, State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import (
    Changed,
    Invalid,
    NotFound,
    ToolDenied,
)
from pml.core.values import JsonObject
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import ADD, ARGUMENTS, CHANGED, LIST, RAN, TOOL, Gatehouse

EDITED: JsonObject = {"text": "edited"}
EDITED_RAN = ("notes", "tools/call", {"name": "add", "arguments": EDITED})


@promise("gate:deny-starts-nothing")
async def test_a_denied_call_starts_nothing_and_asks_nobody(house: Gatehouse) -> None:
    house.configure(deny=[TOOL])
    asking = FakeAsking(house.allowing())

    with pytest.raises(ToolDenied) as refused:
        await house.call(asking=asking)

    assert (house.servers.started, house.servers.ran, asking.asked) == ([], [], [])
    assert (refused.value.tool, refused.value.rule) == (
        TOOL,
        f'deny "{TOOL}" ({house.office.home}/config.json:1)',
    )
    assert await house.judged() == [("call.denied", refused.value.rule)]


@promise("gate:deny-starts-nothing")
async def test_a_deny_of_a_file_that_nobody_trusts_counts_before_trust_is_asked_for(house: Gatehouse) -> None:
    house.configure(servers={})
    house.configure(FileKind.WORKSPACE, deny=[TOOL])
    asking = FakeAsking(house.allowing())

    with pytest.raises(ToolDenied):
        await house.call(asking=asking)

    assert (house.servers.started, asking.asked) == ([], [])


@promise("gate:deny-starts-nothing")
async def test_a_deny_refuses_what_is_no_tool_by_the_name_of_its_method(house: Gatehouse) -> None:
    house.configure(deny=["notes:resources/read"])

    with pytest.raises(ToolDenied):
        await house.call("notes:resources/read", {"uri": "note://1"}, method="resources/read")

    assert (house.servers.started, house.servers.ran) == ([], [])


async def test_what_is_no_tool_is_sent_as_it_is_and_has_no_pin(house: Gatehouse) -> None:
    await house.call("notes:resources/read", {"uri": "note://1"}, method="resources/read")

    assert house.servers.ran == [("notes", "resources/read", {"uri": "note://1"})]
    assert "pin.first_use" not in await house.office.kinds()


@promise("deny:beats-grants")
async def test_a_deny_beats_a_grant_of_the_same_session(house: Gatehouse) -> None:
    await house.call(asking=FakeAsking(house.allowing(scope=Scope.SESSION)), offered=False)
    house.configure(deny=[TOOL])

    with pytest.raises(ToolDenied):
        await house.call(offered=False)

    assert house.servers.ran == [RAN]


@promise("edit:judged-again")
async def test_arguments_that_a_deny_names_cannot_be_edited_in(house: Gatehouse) -> None:
    house.configure(deny=[{"tool": TOOL, "args": {"text": "edited"}}])

    with pytest.raises(ToolDenied):
        await house.call(asking=FakeAsking(house.allowing(updated_input=EDITED)), offered=False)

    assert house.servers.ran == []


@promise("claim:judged-again")
async def test_a_deny_that_arrives_between_the_decision_and_the_claim_refuses(house: Gatehouse) -> None:
    async def allow_and_forbid(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        house.configure(deny=[TOOL])
        return allowed

    with pytest.raises(ToolDenied):
        await house.call(asking=FakeAsking(allow_and_forbid), offered=False)

    assert house.servers.ran == []
    assert await house.states() == [State.CANCELLED]


@promise("gate:approved-is-executed")
async def test_an_allowed_call_runs_silently_with_the_arguments_as_judged(house: Gatehouse) -> None:
    house.configure(allow=[TOOL])
    asking = FakeAsking(house.denying())

    result = await house.call(asking=asking, offered=False)

    assert (result, house.servers.ran, asking.asked) == (b'{"ran":1}', [RAN], [])


async def test_an_allowed_call_is_in_the_audit_log_before_it_runs(house: Gatehouse) -> None:
    house.configure(allow=[TOOL])
    seen: list[tuple[str, str]] = []

    async def look() -> None:
        seen.extend(await house.judged())

    house.servers.before_request = look
    await house.call()

    assert seen == [("call.allowed", f'allow "{TOOL}" ({house.office.home}/config.json:1)')]


async def test_a_call_that_is_remembered_for_the_session_runs_silently(house: Gatehouse) -> None:
    await house.call(asking=FakeAsking(house.allowing(scope=Scope.SESSION)), offered=False)
    asking = FakeAsking()

    await house.call(arguments=EDITED, asking=asking, offered=False)

    assert (house.servers.ran, asking.asked) == ([RAN, EDITED_RAN], [])
    assert (await house.judged())[-1] == ("call.allowed", "remembered for this session")


async def test_an_unlisted_tool_that_the_client_lists_itself_runs_without_asking(house: Gatehouse) -> None:
    asking = FakeAsking()

    await house.call(asking=asking, offered=True)

    assert (house.servers.ran, asking.asked) == ([RAN], [])
    assert await house.judged() == [("call.allowed", "offered by its own name: the client asks")]


@promise("gate:asks-before-running")
@pytest.mark.parametrize("rules", [{}, {"ask": ["*"]}], ids=["no rule", "the default rule"])
async def test_an_unlisted_tool_that_the_client_does_not_see_is_asked_for(
    house: Gatehouse, rules: dict[str, list[str]]
) -> None:
    house.configure(ask=[*rules.get("ask", [])])

    paused = await house.pause(offered=False)

    assert house.servers.ran == []
    assert (paused.record.subject, paused.record.tool_name, paused.record.tool_input) == (
        Subject.TOOL_CALL,
        TOOL,
        ARGUMENTS,
    )


@promise("gate:asks-before-running")
async def test_every_unlisted_call_is_asked_for_where_the_user_wants_it(house: Gatehouse) -> None:
    house.configure(approval={"unlisted": "every_call"})

    await house.pause(offered=True)

    assert house.servers.ran == []


@promise("gate:asks-before-running")
async def test_what_an_ask_rule_names_is_asked_for_on_every_call(house: Gatehouse) -> None:
    house.configure(ask=[TOOL])
    asking = FakeAsking(house.allowing(), house.allowing())

    await house.call(asking=asking, offered=True)
    await house.call(asking=asking, offered=True)

    assert (len(asking.asked), house.servers.ran) == (2, [RAN, RAN])
    rule = asking.asked[0].rule
    assert rule is not None
    assert (matched(rule).verdict, matched(rule).entry) == ("ask", f'"{TOOL}"')


async def test_a_call_without_an_argument_that_its_schema_requires_asks_nobody(house: Gatehouse) -> None:
    asking = FakeAsking(house.allowing())

    with pytest.raises(Invalid, match="`notes:add` needs `text`"):
        await house.call(arguments={"txt": "hello"}, asking=asking, offered=False)

    assert (asking.asked, house.servers.ran) == ([], [])


async def test_a_tool_that_its_server_does_not_offer_is_not_found_with_the_near_ones(
    house: Gatehouse,
) -> None:
    with pytest.raises(NotFound) as error:
        await house.call("notes:ad")

    assert (error.value.message, error.value.hint) == (
        "no tool `notes:ad`",
        "did you mean `notes:add`, `notes:list`?",
    )
    assert house.servers.ran == []


async def test_a_tool_of_no_server_is_not_found_and_starts_nothing(house: Gatehouse) -> None:
    with pytest.raises(NotFound, match="no tool `note:add`"):
        await house.call("note:add")

    assert house.servers.started == []


async def test_a_server_that_changes_all_the_time_is_given_up(house: Gatehouse) -> None:
    async def announce() -> None:
        house.servers.stop("notes")

    house.servers.before_request = announce

    with pytest.raises(Changed, match="changes too often"):
        await house.call()

    assert house.servers.ran == []


@promise("gate:approved-is-executed")
async def test_an_approved_call_does_not_run_on_a_server_that_changes_after_the_claim(
    house: Gatehouse,
) -> None:
    async def change() -> None:
        house.servers.offer("notes", CHANGED, LIST)

    house.servers.before_request = change

    with pytest.raises(Changed):
        await house.call(asking=FakeAsking(house.allowing()), offered=False)

    assert (house.servers.ran, await house.states()) == ([], [State.FAILED])


@promise("gate:approved-is-executed")
async def test_an_approved_call_does_not_run_on_a_tool_that_changed_before_the_claim(
    house: Gatehouse,
) -> None:
    async def allow_and_change(record: Approval) -> Approval:
        allowed = (await house.office.allow(record)).record
        house.servers.offer("notes", CHANGED, LIST)
        return allowed

    with pytest.raises(Changed):
        await house.call(asking=FakeAsking(allow_and_change), offered=False)

    assert (house.servers.ran, await house.states()) == ([], [State.CANCELLED])


async def test_a_call_that_needs_no_approval_is_judged_again_when_its_server_changed(
    house: Gatehouse,
) -> None:
    async def add_another() -> None:
        house.servers.before_request = None
        house.servers.offer("notes", ADD)

    house.servers.before_request = add_another

    await house.call()

    assert (house.servers.ran, house.servers.started) == ([RAN], ["notes", "notes"])


async def test_an_approved_call_runs_once_on_a_server_that_reads_its_list_again_unchanged(
    house: Gatehouse,
) -> None:
    async def restart() -> None:
        house.servers.before_request = None
        house.servers.stop("notes")

    house.servers.before_request = restart

    await house.call(asking=FakeAsking(house.allowing()), offered=False)

    assert (house.servers.ran, await house.states()) == ([RAN], [State.COMPLETED])


@promise("claim:judged-again")
@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        ({"deny": [TOOL]}, ToolDenied),
        ({"servers": {"notes": {"command": "another"}}}, Changed),
        ({"servers": {}}, Changed),
    ],
    ids=["denied", "started otherwise", "taken away"],
)
async def test_an_approved_call_is_judged_again_when_its_server_had_to_be_made_ready_again(
    house: Gatehouse, meanwhile: dict[str, Any], error: type[Exception]
) -> None:
    async def restart() -> None:
        house.servers.before_request = None
        house.servers.stop("notes")
        house.configure(**meanwhile)

    house.servers.before_request = restart

    with pytest.raises(error):
        await house.call(asking=FakeAsking(house.allowing()), offered=False)

    assert house.servers.started == ["notes"]  # and not once more for a call that does not run
    assert (house.servers.ran, await house.states()) == ([], [State.FAILED])


@promise("gate:deny-starts-nothing")
async def test_a_deny_that_comes_while_the_server_changes_stops_a_call_that_a_rule_allowed(
    house: Gatehouse,
) -> None:
    async def restart() -> None:
        house.servers.before_request = None
        house.servers.stop("notes")
        house.configure(deny=[TOOL])

    house.configure(allow=[TOOL])
    house.servers.before_request = restart

    with pytest.raises(ToolDenied):
        await house.call()

    assert house.servers.ran == []
