"""The inbox logs in to a server: the hub finds the page, and what comes back lets the call continue."""

import asyncio
from pathlib import Path

import pytest

from pml.core.approvals.record import Approval, Role, SessionId, State, Subject
from pml.core.config.file import FileKind
from pml.core.sessions.token import TokenRole
from pml.service.approvals.lifecycle import Question, ask, get
from pml.service.policy.policy import current_policy
from pml.testing.store import MemoryStore
from tests.hub.hubs import TOP, HubRig
from tests.oauth.rig import Issuer, consent
from tests.promises import promise
from tests.service.offices import Office


@pytest.fixture
async def rig(tmp_path: Path, protected: str) -> HubRig:
    rig = HubRig(Office(MemoryStore(), tmp_path))
    await rig.fill()
    rig.office.write(FileKind.USER, {"mcpServers": {"vault": {"type": "http", "url": protected}}})
    return rig


async def asked(rig: HubRig, subject: Subject = Subject.LOGIN_REQUIRED) -> Approval:
    session = await rig.context.store.sessions.get(SessionId(TOP))
    assert session is not None
    policy = await current_policy(rig.context, session.workspace)
    question = Question(
        session=session,
        tool="vault:read",
        arguments={"server": "vault", "url": "u", "tool": "vault:read", "arguments": {"name": "x"}},
        subject=subject,
        artefact=policy.settings.servers["vault"].target_digest,
        deciders=frozenset({Role.PERSON}),
    )
    return await ask(rig.context, question)


async def test_the_button_leads_to_the_login_page_and_its_end_decides_the_question(
    rig: HubRig, issuer: Issuer
) -> None:
    record = await asked(rig)
    path = f"/api/approvals/{record.id}/login"

    begun = await rig.send("POST", path, json={})
    assert begun.status == 200, begun.text
    assert begun.json["url"].startswith(issuer.url)
    assert (await rig.send("GET", path)).json == {"is_open": True, "problem": None}
    await asyncio.to_thread(consent, begun.json["url"])
    await rig.logins.finished(record.id)

    now = await get(rig.context, record.id)
    assert now.status is State.ALLOWED
    assert now.decided_by is not None
    assert now.decided_by.channel == "inbox"
    [login] = rig.server_logins.all()
    held = rig.server_logins.read(login.key)
    assert held is not None
    assert held.tokens.access_token is not None
    said = (await rig.send("GET", path)).text + begun.text
    assert held.tokens.access_token not in said


async def test_the_address_can_be_pasted_and_a_wrong_one_is_not_repeated(rig: HubRig, issuer: Issuer) -> None:
    record = await asked(rig)
    path = f"/api/approvals/{record.id}/login"
    begun = await rig.send("POST", path, json={})
    ended_at = await asyncio.to_thread(consent, begun.json["url"], visit_last=False)

    wrong = await rig.send("POST", f"{path}/address", json={"address": "https://evil.example/?code=hunter2"})
    right = await rig.send("POST", f"{path}/address", json={"address": ended_at})
    await rig.logins.finished(record.id)

    assert (wrong.status, "hunter2" in wrong.text, right.status) == (400, False, 200)
    assert (await get(rig.context, record.id)).status is State.ALLOWED


@promise("login:never-an-agents")
@pytest.mark.parametrize("role", [TokenRole.SESSION, TokenRole.CHILD])
async def test_only_a_person_begins_a_login(rig: HubRig, issuer: Issuer, role: TokenRole) -> None:
    record = await asked(rig)
    path = f"/api/approvals/{record.id}/login"

    answers = [
        await rig.send("POST", path, role, json={}),
        await rig.send("GET", path, role),
        await rig.send("POST", f"{path}/address", role, json={"address": "x"}),
    ]

    assert [each.status for each in answers] == [403, 403, 403]
    assert not rig.logins.is_open(record.id)


async def test_a_server_that_is_another_by_now_is_not_logged_in_to(rig: HubRig, issuer: Issuer) -> None:
    record = await asked(rig)
    rig.office.write(
        FileKind.USER, {"mcpServers": {"vault": {"type": "http", "url": "https://evil.example/mcp"}}}
    )

    answer = await rig.send("POST", f"/api/approvals/{record.id}/login", json={})

    assert (answer.status, "no longer the one" in answer.text) == (409, True)


async def test_a_question_of_another_kind_has_no_login(rig: HubRig, issuer: Issuer) -> None:
    record = await asked(rig, Subject.API_KEY_REQUIRED)

    answer = await rig.send("POST", f"/api/approvals/{record.id}/login", json={})

    assert (answer.status, "not about a login" in answer.text) == (400, True)
