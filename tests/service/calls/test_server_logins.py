"""Calls whose server wants a login: a person is asked, once, and what was not sent is sent once after it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, Role, State, Subject
from pml.core.errors import LoginRequired, MayNotDecide, NotApproved, ServerFailed
from pml.core.ports.server_logins import ServerLogin
from pml.core.values import JsonObject
from pml.service.call import Paused
from pml.service.policy.policy import Policy, current_policy
from pml.service.servers.server_logins import note_login
from tests.fakes import FakeAsking, FakeServers
from tests.promises import promise
from tests.service.codehouses import Library, add, one_by_one
from tests.service.gatehouses import RAN, TOOL, Gatehouse
from tests.service.offices import SESSION, Office

REMOTE: Final[JsonObject] = {"type": "http", "url": "https://notes.example/mcp"}
PERSON: Final = Decider(kind=DeciderKind.PERSON, id="ana", channel=Channel.TERMINAL)


class GuardedServers(FakeServers):
    """Servers that refuse what comes before a login, unread."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False
        self.refused = 0

    async def request(self, spec: Any, method: str, params: JsonObject, **more: Any) -> bytes:
        if not self.is_open:
            self.refused += 1
            raise LoginRequired(spec.name)
        return await super().request(spec, method, params, **more)


def remote(house: Gatehouse) -> GuardedServers:
    """Let the server of the house be reached by URL, behind a login."""
    assert isinstance(house.servers, GuardedServers)
    house.configure(servers={"notes": REMOTE}, allow=[TOOL])
    return house.servers


@pytest.fixture
async def guarded(office: Office) -> Gatehouse:
    house = Gatehouse(office, await office.session(SESSION), servers=GuardedServers())
    remote(house)
    return house


def servers_of(house: Gatehouse) -> GuardedServers:
    assert isinstance(house.servers, GuardedServers)
    return house.servers


def logging_in(house: Gatehouse) -> Callable[[Approval], Awaitable[Approval]]:
    async def answer(record: Approval) -> Approval:
        servers_of(house).is_open = True
        return (await house.office.allow(record)).record

    return answer


@promise("login:asked-once")
async def test_a_call_that_needs_a_login_asks_a_person_and_continues(guarded: Gatehouse) -> None:
    asking = FakeAsking(logging_in(guarded))

    await guarded.call(asking=asking)

    [asked] = asking.asked
    assert (asked.subject, asked.deciders) == (Subject.LOGIN_REQUIRED, frozenset({Role.PERSON}))
    assert asked.tool_input["server"] == "notes"
    assert guarded.servers.ran == [RAN]
    assert await guarded.states() == [State.COMPLETED]


@promise("login:asked-once")
async def test_a_server_that_refuses_for_ever_is_asked_about_once(guarded: Gatehouse) -> None:
    asking = FakeAsking(guarded.allowing(), guarded.allowing())

    with pytest.raises(ServerFailed, match="also after a login"):
        await guarded.call(asking=asking)

    assert (len(asking.asked), servers_of(guarded).refused, guarded.servers.ran) == (1, 2, [])


@promise("login:unsent-not-repeated")
async def test_an_approved_call_keeps_its_answer_while_a_login_is_waited_for(guarded: Gatehouse) -> None:
    guarded.configure(servers={"notes": REMOTE}, ask=[TOOL])
    asking = FakeAsking(guarded.allowing(), logging_in(guarded))

    await guarded.call(asking=asking, offered=False)

    assert [each.subject for each in asking.asked] == [Subject.TOOL_CALL, Subject.LOGIN_REQUIRED]
    assert guarded.servers.ran == [RAN]
    assert await guarded.states() == [State.COMPLETED, State.COMPLETED]
    assert (await guarded.office.kinds()).count("approval.unsent") == 1


@promise("login:unsent-not-repeated")
async def test_an_approved_call_that_is_left_for_a_login_is_not_asked_about_again(guarded: Gatehouse) -> None:
    guarded.configure(servers={"notes": REMOTE}, ask=[TOOL])

    paused = await guarded.pause(asking=FakeAsking(guarded.allowing()))
    servers_of(guarded).is_open = True
    await guarded.office.allow(paused.record)
    nobody = FakeAsking()
    await guarded.go_on(paused.workflow.id, asking=nobody)

    assert paused.record.subject is Subject.LOGIN_REQUIRED
    assert (nobody.asked, guarded.servers.ran) == ([], [RAN])
    assert await guarded.states() == [State.COMPLETED, State.COMPLETED]


async def test_a_login_that_is_denied_ends_the_call_unsent(guarded: Gatehouse) -> None:
    with pytest.raises(NotApproved):
        await guarded.call(asking=FakeAsking(guarded.denying()))

    assert guarded.servers.ran == []


@promise("login:never-an-agents")
@pytest.mark.parametrize(
    "by",
    [
        Decider(kind=DeciderKind.CLIENT, id="claude", channel=Channel.FORM),
        Decider(kind=DeciderKind.CLIENT, id="claude", channel=Channel.MODEL),
        Decider(kind=DeciderKind.PARENT, id="session-0", channel=Channel.LOOPBACK),
    ],
)
async def test_neither_form_nor_model_nor_parent_says_that_somebody_logged_in(
    guarded: Gatehouse, by: Decider
) -> None:
    guarded.configure(servers={"notes": REMOTE}, allow=[TOOL], approval={"model_may_approve": "always"})
    paused = await guarded.pause(asking=FakeAsking(has_form=True))

    with pytest.raises(MayNotDecide):
        await guarded.office.allow(paused.record, by=by)


async def test_a_login_lets_all_continue_that_wait_for_it_and_nobody_else(guarded: Gatehouse) -> None:
    one = await guarded.pause()
    two = await guarded.pause(arguments={"text": "two"})
    guarded.configure(servers={"notes": REMOTE}, ask=["notes:list"], allow=[TOOL])
    other = await guarded.office.ask("shop:buy")
    context = guarded.office.context
    policy = await current(guarded)
    login = ServerLogin(
        server="notes",
        place="p",
        origin="o",
        issuer="i",
        client_id="c",
        auth_method="none",
        token_endpoint="t",
    )

    released = await note_login(context, policy.settings.servers["notes"], login, by=PERSON)

    assert {each.id for each in released} == {one.record.id, two.record.id}
    left = await context.store.approvals.get(other.id)
    assert left is not None
    assert left.status is State.PENDING
    assert "server.logged_in" in await guarded.office.kinds()


async def current(house: Gatehouse) -> Policy:
    return await current_policy(house.office.context, str(house.office.workspace))


@promise("login:unsent-not-repeated")
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_login_in_the_middle_of_code_is_asked_for_once_and_nothing_runs_twice(
    office: Office, is_killed: bool
) -> None:
    house = Library(office, await office.session(SESSION))
    servers = GuardedServers()
    servers.offer("notes", *house.servers._offers["notes"])  # pyright: ignore[reportPrivateUsage]
    house.servers = servers
    house.equip(servers=servers)
    house.configure(servers={"notes": REMOTE}, allow=["notes:*"])
    house.sandbox.scripts["steps"] = one_by_one(add("one"), add("two"), add("three"))
    servers.is_open = True

    real = servers.request

    async def request(*given: Any, **more: Any) -> bytes:
        if len(servers.ran) == 1 and not servers.refused:
            servers.is_open = False
        return await real(*given, **more)

    servers.request = request
    with pytest.raises(Paused) as paused:
        await house.run("steps")
    servers.is_open = True
    if is_killed:  # what it knew of its steps is only what it kept
        house = await house.restart()
        house.servers = servers
        house.equip(servers=servers)
    await house.allow(paused.value.record)
    told = await house.resume(paused.value)

    assert paused.value.record.subject is Subject.LOGIN_REQUIRED
    assert told == "done"
    assert house.added == ["one", "two", "three"]
    assert servers.refused == 1
