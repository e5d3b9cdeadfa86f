"""A key is asked for by a page of the inbox that the client opens, in both eras: no model ever has it."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from pml.core.approvals.record import Approval, DeciderKind, State, Subject
from pml.core.packages.permissions import Containment
from pml.core.ports.loader import Plan
from pml.core.ports.queries import ApprovalQuery
from pml.core.values import Json, JsonObject
from pml.downstream.forms import elicitation
from pml.downstream.forms.relay import Relay
from pml.downstream.gateway import Gateway
from pml.downstream.protocol.eras import MODERN, Era
from pml.service.call import Gate, Loader
from tests.downstream.parties import FORMS, LATEST, FakeServer, Message, Party, code_of, text_of, tool
from tests.fakes_loading import FakeInstaller, FakeSources, FakeVariables, make_dependency, make_lock
from tests.promises import promise

KEY: Final = "ANTHROPIC_API_KEY"
SECRET: Final = "sk-very-secret"
HUB: Final = "http://127.0.0.1:4445"
CALL: Final[JsonObject] = {"tool": "memory:add", "arguments": {"text": "hello"}}
LINKS: Final[JsonObject] = {"elicitation": {"url": {}}}
OPENED: Final[JsonObject] = {"action": "accept"}
DECLINE: Final[JsonObject] = {"action": "decline"}
CANCEL: Final[JsonObject] = {"action": "cancel"}
BOTH = pytest.mark.parametrize("version", [LATEST, MODERN])
EITHER = pytest.mark.parametrize("capabilities", [LINKS, FORMS])


class Keyless(Party):
    """A client whose server `memory` is installed and may be called, but lacks a key; a hub is at `hub`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hub: str | None = HUB
        self.variables = FakeVariables()
        self.servers.named["memory"] = FakeServer(tools=(tool("add", required=["text"]),))
        self.configure(mcpServers={}, permissions={"allow": ["memory:*", "pml:call"]})

    async def _open(self, era: Era) -> Gateway:
        session = await self.office.session()
        self.relay = Relay(self.connection, session.workspace)
        needy = make_dependency(env_required=(KEY,))
        installer, sources = FakeInstaller(), FakeSources()
        sources.offer("memory", needy)
        plan = Plan(dependency=needy, lock=make_lock(needy), containment=Containment.BUBBLEWRAP)
        installer.place(plan)
        loader = Loader(
            sources=sources,
            installer=installer,
            variables=self.variables,
            containment=lambda permissions: Containment.BUBBLEWRAP,
        )
        gate = Gate(
            context=self.office.context, session=session, servers=self.servers, loader=loader, is_stdio=True
        )
        self._gateway = Gateway(gate, self.connection, self.relay, hub_url=lambda: self.hub)
        return self._gateway

    async def begin(self, version: str, capabilities: JsonObject = LINKS) -> "Asked":
        """Call the tool, and return what the client is asked."""
        await self.connect(version, capabilities)
        id = self.start_call("call", CALL)
        if version == MODERN:
            result = await self.result_of(id)
            assert result["resultType"] == "input_required", result
            return Asked(
                self, id, result["inputRequests"]["approval"]["params"], state=result["requestState"]
            )
        message = await self.asked()
        return Asked(self, id, message["params"], message=message)

    async def give_key(self) -> Approval:
        """Do what the page does: store the key, then allow."""
        self.variables.known[KEY] = SECRET
        return await self.decide(allow=True)

    async def states(self) -> list[State]:
        records = await self.office.context.store.approvals.page(ApprovalQuery())
        assert {record.subject for record in records} <= {Subject.API_KEY_REQUIRED}
        return [record.status for record in records]


class Asked:
    """What the client was asked, and its answer, whichever way it goes."""

    def __init__(
        self, party: Keyless, id: int, params: Any, *, state: str = "", message: Message | None = None
    ) -> None:
        self.params = params
        self.id = id
        self._party = party
        self._state = state
        self._message = message

    def answer(self, answer: Json) -> None:
        if self._message is not None:
            assert isinstance(answer, dict)
            self._party.reply(self._message, answer)
        else:
            more: JsonObject = {"requestState": self._state, "inputResponses": {"approval": answer}}
            self.id = self._party.start_call("call", CALL, **more)

    async def result(self) -> Message:
        return await self._party.result_of(self.id)


@pytest.fixture
async def party(tmp_path: Path) -> AsyncGenerator[Keyless]:
    party = Keyless(tmp_path)
    yield party
    await party.close()


@promise("secret:url-mode")
@BOTH
@EITHER
async def test_a_key_that_is_missing_is_asked_for_by_a_page_and_the_call_goes_on_once_it_is_given(
    party: Keyless, version: str, capabilities: JsonObject
) -> None:
    asked = await party.begin(version, capabilities)
    record = await party.question()
    expected = {"mode": "url", "message": asked.params["message"], "url": f"{HUB}/#/secrets/{record.id}"}
    assert {name: asked.params[name] for name in expected} == expected
    assert set(asked.params) - set(expected) == (set() if version == MODERN else {"elicitationId"})
    assert asked.params["message"].startswith(f"memory requires {KEY}. ")

    asked.answer(OPENED)
    await party.settle()
    assert (party.servers.calls, await party.states()) == ([], [State.PENDING])
    await party.give_key()

    assert text_of(await asked.result()) == '{"text": "hello"}'
    assert await party.states() == [State.COMPLETED]
    assert SECRET.encode() not in b"".join(party.lines)


@promise("secret:url-mode")
@BOTH
@pytest.mark.parametrize("content", [None, {"remember": "once"}, {KEY: SECRET}])
async def test_that_a_page_was_opened_decides_nothing(
    party: Keyless, version: str, content: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation, "FORM_S", 0.02)
    asked = await party.begin(version, FORMS)
    asked.answer(OPENED if content is None else {**OPENED, "content": content})
    await party.settle()
    assert await party.states() == [State.PENDING]
    party.office.clock.advance(1)

    result = await asked.result()
    assert text_of(result).startswith(f"memory requires {KEY}")
    assert result["structuredContent"]["approval_required"] is True
    assert (party.servers.calls, await party.states()) == ([], [State.PENDING])


@BOTH
async def test_a_key_that_is_given_after_the_call_was_answered_lets_it_be_continued(
    party: Keyless, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation, "FORM_S", 0.02)
    asked = await party.begin(version)
    asked.answer(OPENED)
    await party.settle()
    party.office.clock.advance(1)
    workflow_id = (await asked.result())["structuredContent"]["workflow_id"]
    await party.give_key()

    answer = await party.continue_("call", workflow_id)
    assert text_of(answer["result"]) == '{"text": "hello"}'


@BOTH
async def test_declining_to_open_the_page_aborts_the_call(party: Keyless, version: str) -> None:
    asked = await party.begin(version)
    asked.answer(DECLINE)

    assert code_of(await asked.result()) == "user_denied"
    assert (party.servers.calls, await party.states()) == ([], [State.DENIED])


@BOTH
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("answer", [CANCEL, DECLINE])
async def test_an_answer_that_is_nobodys_leaves_the_question_to_others(
    party: Keyless, version: str, answer: JsonObject
) -> None:
    asked = await party.begin(version)
    asked.answer(answer)

    assert text_of(await asked.result()).startswith(f"memory requires {KEY}")
    assert await party.states() == [State.PENDING]


@BOTH
async def test_a_page_where_the_key_was_given_although_the_client_never_answered_is_enough(
    party: Keyless, version: str
) -> None:
    asked = await party.begin(version)
    record = await party.give_key()
    assert record.decided_by is not None
    assert record.decided_by.kind is DeciderKind.PERSON
    if version == MODERN:
        asked.answer(CANCEL)
    assert text_of(await asked.result()) == '{"text": "hello"}'


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_legacy_client_is_told_that_the_page_has_done_its_work(
    party: Keyless, is_answered: bool
) -> None:
    asked = await party.begin(LATEST)
    if is_answered:
        asked.answer(OPENED)
        await party.settle()
    assert party.told_now("notifications/elicitation/complete") == []
    await party.give_key()
    await asked.result()

    told = await party.told("notifications/elicitation/complete")
    assert told == [{"elicitationId": asked.params["elicitationId"]}]
    cancelled = party.told_now("notifications/cancelled")
    assert len(cancelled) == (0 if is_answered else 1)


async def test_a_legacy_client_is_told_also_after_its_call_was_answered(
    party: Keyless, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation, "FORM_S", 0.02)
    asked = await party.begin(LATEST)
    asked.answer(OPENED)
    await party.settle()
    party.office.clock.advance(1)
    await asked.result()
    await party.give_key()

    told = await party.told("notifications/elicitation/complete")
    assert told == [{"elicitationId": asked.params["elicitationId"]}]


async def test_two_calls_that_need_the_same_key_open_one_page(party: Keyless) -> None:
    asked = await party.begin(LATEST)
    again = party.start_call("call", CALL)
    await party.settle()
    assert party.unasked
    asked.answer(OPENED)
    await party.give_key()

    assert text_of(await asked.result()) == text_of(await party.result_of(again)) == '{"text": "hello"}'


@BOTH
async def test_without_a_hub_a_form_asks_whether_the_key_is_set(party: Keyless, version: str) -> None:
    party.hub = None
    asked = await party.begin(version, FORMS)
    assert asked.params["mode"] == "form"
    assert asked.params["message"].startswith(f"memory requires {KEY}. Is it set?")


@pytest.mark.parametrize(
    ("version", "capabilities", "hub"),
    [
        (LATEST, LINKS, None),
        (MODERN, LINKS, None),
        ("2025-06-18", LINKS, HUB),
        ("2025-06-18", {}, HUB),
        (LATEST, {}, HUB),
        (MODERN, {}, HUB),
    ],
)
async def test_a_client_that_opens_no_pages_is_told_how_to_go_on(
    party: Keyless, version: str, capabilities: JsonObject, hub: str | None
) -> None:
    party.hub = hub
    await party.connect(version, capabilities)
    result = await party.call("call", CALL)
    assert text_of(result).startswith(f"memory requires {KEY}")
    assert party.unasked


async def test_only_a_key_is_asked_for_by_a_page(party: Keyless) -> None:
    party.variables.known[KEY] = SECRET
    party.configure(mcpServers={}, permissions={"ask": ["memory:*"]})
    asked = await party.begin(LATEST, FORMS)
    assert asked.params["mode"] == "form"
