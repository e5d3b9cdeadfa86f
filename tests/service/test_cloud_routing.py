"""Tools that run in the cloud: judged here first, sent once, with a key from the secrets and no other."""

import asyncio
from typing import Any, Final

import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import State
from pml.core.config.file import FileKind
from pml.core.errors import Changed, ServerFailed, ServerRefused, ToolDenied, ToolFailed, Unavailable
from pml.core.packages.capability import CapabilityType, Routing
from pml.core.ports.cloud import KEY
from pml.core.values import JsonObject
from pml.service.call import Paused
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.codehouses import Library, abandon, catching, enter_library, one_by_one, until
from tests.service.offices import Office

CLOUD: Final = "https://cloud.example"
TOOL: Final = "translate:run"
ARGUMENTS: Final[JsonObject] = {"text": "hello"}
SENT: Final = (CLOUD, "acme.tools.translate", ARGUMENTS, None)


@pytest.fixture
async def house(office: Office) -> Library:
    """`translate` runs in the cloud that the user's file names; no rule names it."""
    house = await enter_library(office)
    house.publish("translate", one_by_one(), routing=Routing.SERVER)
    rules(house)
    return house


def rules(house: Library, *, cloud: str | None = CLOUD, **rules: list[Any]) -> None:
    where: JsonObject = {} if cloud is None else {"cloud": cloud}
    house.office.write(FileKind.USER, {"mcpServers": dict(house.configured), "permissions": rules, **where})


@promise("cloud:judged-here-first")
async def test_a_denied_call_is_not_sent(house: Library) -> None:
    rules(house, deny=[TOOL])

    with pytest.raises(ToolDenied):
        await house.call(TOOL, ARGUMENTS)

    assert (house.cloud.calls, house.sources.looked_up) == ([], [])


@promise("cloud:judged-here-first")
async def test_a_call_that_asks_is_sent_when_somebody_has_allowed_it(house: Library) -> None:
    paused = await house.pause(TOOL, ARGUMENTS)
    assert house.cloud.calls == []

    await house.allow(paused.record)
    await house.go_on(paused.workflow.id, tool=TOOL)

    assert house.cloud.calls == [SENT]
    assert (await house.office.stored(paused.record)).status is State.COMPLETED


@promise("cloud:judged-here-first")
async def test_a_deny_that_comes_after_the_answer_keeps_the_call_here(house: Library) -> None:
    paused = await house.pause(TOOL, ARGUMENTS)
    await house.allow(paused.record)
    rules(house, deny=[TOOL])

    with pytest.raises(ToolDenied):
        await house.go_on(paused.workflow.id, tool=TOOL)
    assert house.cloud.calls == []


@promise("gate:approved-is-executed")
async def test_an_answer_about_one_cloud_does_not_send_the_call_to_another(house: Library) -> None:
    async def move_and_allow(record: Any) -> Any:
        rules(house, cloud="https://elsewhere.example")
        return (await house.office.allow(record)).record

    with pytest.raises(Changed):
        await house.call(TOOL, ARGUMENTS, asking=FakeAsking(move_and_allow), offered=False)

    assert house.cloud.calls == []


@promise("config:untrusted-only-tightens")
async def test_a_cloud_that_only_an_untrusted_file_names_gets_nothing(house: Library) -> None:
    rules(house, cloud=None, allow=[TOOL])
    house.office.write(FileKind.WORKSPACE, {"cloud": "https://thief.example"})
    house.variables.known[KEY] = "the key"

    with pytest.raises((ServerFailed, Paused)):
        await house.call(TOOL, ARGUMENTS)

    assert house.cloud.calls == []


@promise("cloud:never-twice")
@pytest.mark.parametrize(
    "error",
    [
        ServerFailed("the cloud did not answer"),
        Unavailable("the cloud cannot be reached"),
        ServerRefused("no", error=b'{"code":-32000,"message":"no"}'),
        Changed("something changed"),
    ],
)
async def test_a_call_that_failed_in_the_cloud_is_not_sent_again(house: Library, error: Exception) -> None:
    house.cloud.error = error  # type: ignore[assignment]
    paused = await house.pause(TOOL, ARGUMENTS)
    await house.allow(paused.record)

    with pytest.raises(type(error)):
        await house.go_on(paused.workflow.id, tool=TOOL)

    assert house.cloud.calls == [SENT]
    assert (await house.office.stored(paused.record)).status is State.FAILED


@promise("cloud:never-twice")
async def test_a_call_that_a_rule_allows_is_not_sent_again_either(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.cloud.error = ServerFailed("the cloud did not answer")

    with pytest.raises(ServerFailed):
        await house.call(TOOL, ARGUMENTS)

    assert house.cloud.calls == [SENT]
    assert ("call.failed", "the cloud did not answer") in await house.judged()


@promise("cloud:never-twice")
async def test_a_call_of_code_that_was_under_way_in_the_cloud_is_a_persons_after_a_kill(
    house: Library,
) -> None:
    rules(house, allow=[TOOL])
    house.sandbox.scripts["code"] = catching((TOOL, ARGUMENTS))
    house.cloud.hangs = True
    working = asyncio.ensure_future(house.run("code"))
    await until(house.cloud.running)
    journals: Any = house.office.context.store.journals
    (run_id,) = list(journals._runs)

    after = await house.restart()
    with pytest.raises(Paused) as unknown:
        await after.take_up(run_id)

    assert unknown.value.record.rule is not None
    assert matched(unknown.value.record.rule).verdict == "unknown"
    assert after.cloud.calls == []
    await abandon(working)


@promise("cloud:judged-here-first")
async def test_code_gets_plain_data_from_the_cloud(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.cloud.result = {"content": [], "structuredContent": {"german": "hallo"}}
    house.sandbox.scripts["code"] = one_by_one((TOOL, ARGUMENTS))

    assert await house.run("code") == "done"
    assert house.cloud.calls == [SENT]


# A question there


@promise("cloud:asks-there")
async def test_a_cloud_that_asks_a_person_there_is_told_as_such(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.cloud.result = {"approval_required": True, "approval_context": {"workflow_id": "theirs"}}

    with pytest.raises(ToolFailed) as asked:
        await house.call(TOOL, ARGUMENTS)

    assert asked.value.refusal == "cloud_asks"
    assert house.cloud.calls == [SENT]


@promise("cloud:asks-there")
async def test_code_cannot_catch_that_the_cloud_asks_and_can_go_on_later(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.cloud.result = {"approval_required": True}
    house.sandbox.scripts["code"] = catching((TOOL, ARGUMENTS))

    with pytest.raises(ToolFailed) as asked:
        await house.run("code")

    assert asked.value.refusal == "cloud_asks"
    [run] = await house.office.context.store.journals.begun_with("ana", "pml:execute")
    assert run.owner is None


async def test_a_result_that_only_speaks_of_approval_is_one(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.cloud.result = {"content": [], "structuredContent": {"approval_required": True}}

    assert b"approval_required" in await house.call(TOOL, ARGUMENTS)


# The key


@promise("cloud:key-from-secrets")
async def test_the_key_is_taken_from_the_users_secrets(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.variables.known[KEY] = "the key"

    await house.call(TOOL, ARGUMENTS)

    assert house.cloud.calls == [(CLOUD, "acme.tools.translate", ARGUMENTS, "the key")]


@promise("cloud:key-from-secrets")
async def test_a_workspaces_variables_hold_no_key(house: Library) -> None:
    house.office.write(FileKind.WORKSPACE, {})
    await house.office.trust()
    rules(house, allow=[TOOL])
    house.variables.in_workspace[KEY] = "planted"

    await house.call(TOOL, ARGUMENTS)

    assert house.cloud.calls == [SENT]
    assert house.variables.looked_up == [((KEY,), None)]


@promise("cloud:key-from-secrets")
async def test_the_key_is_in_no_question_and_no_log(house: Library) -> None:
    house.variables.known[KEY] = "SECRET-KEY"
    paused = await house.pause(TOOL, ARGUMENTS)
    await house.allow(paused.record)
    await house.go_on(paused.workflow.id, tool=TOOL)

    assert "SECRET-KEY" not in str(await house.questions())
    assert "SECRET-KEY" not in str(await house.judged())


# Where there is none, and where we are it


async def test_without_a_cloud_the_error_says_so(house: Library) -> None:
    rules(house, cloud=None, allow=[TOOL])

    with pytest.raises(ServerFailed, match="none is configured"):
        await house.call(TOOL, ARGUMENTS)


@promise("cloud:runs-there")
async def test_the_cloud_itself_runs_what_others_route_to_it(house: Library) -> None:
    rules(house, allow=[TOOL])
    house.equip(is_cloud=True)

    assert await house.use(TOOL, ARGUMENTS) == "done"
    assert house.cloud.calls == []
    assert len(house.sandbox.opened) == 1


@promise("cloud:runs-there")
async def test_the_cloud_judges_by_rules_of_its_own(house: Library) -> None:
    rules(house, deny=[TOOL])
    house.equip(is_cloud=True)

    with pytest.raises(ToolDenied):
        await house.use(TOOL, ARGUMENTS)
    assert house.sandbox.opened == []


@promise("cloud:runs-there")
async def test_a_server_that_runs_in_the_cloud_is_installed_there_and_not_here(house: Library) -> None:
    house.sources.publish(
        "acme.tools.memory",
        None,
        make_dependency(),
        kind=CapabilityType.SERVER,
        routing=Routing.SERVER,
        tools=[{"name": "add"}],
    )
    rules(house, allow=["memory:*"])

    await house.call("memory:add", ARGUMENTS)
    assert (house.cloud.calls, house.installs) == (
        [(CLOUD, "acme.tools.memory.add", ARGUMENTS, None)],
        [],
    )

    house.equip(is_cloud=True)
    await house.call("memory:add", ARGUMENTS)
    assert len(house.cloud.calls) == 1
    assert house.installs == ["memory@1.2.3"]


@promise("workflow:bound-to-its-call")
async def test_going_on_with_a_workflow_of_ours_sends_the_cloud_nothing_of_it(house: Library) -> None:
    paused = await house.pause(TOOL, ARGUMENTS)
    await house.allow(paused.record)
    await house.go_on(paused.workflow.id, tool=TOOL)

    (sent,) = house.cloud.calls
    assert sent[2] == ARGUMENTS
    assert "continue_workflow" not in sent[2]
