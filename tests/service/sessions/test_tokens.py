"""Tokens: made once, kept as hashes, ended with their session."""

import pytest

from pml.core.approvals.record import SessionId
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.sessions.token import Identity, Token, TokenId, TokenRole, read_token
from pml.service.sessions.tokens import create_agent_token, create_token, identify_bearer, revoke_token
from pml.service.upkeep import end_session
from tests.builders import PERSON
from tests.promises import promise
from tests.service.offices import SESSION, Office

ROLE = TokenRole.SESSION


async def test_a_token_is_kept_as_a_hash_and_tells_whose_it_is(office: Office) -> None:
    token, text = await create_token(office.context, role=TokenRole.PERSON, name="ana", by=PERSON)
    read = read_token(text)
    assert read is not None
    assert read[0] == token.id
    assert read[1] not in repr(await office.context.store.tokens.all())
    for header in (f"Bearer {text}", f"bearer {text}", f"BEARER  {text}"):
        assert await identify_bearer(office.context, header) == Identity(
            token_id=token.id, role=TokenRole.PERSON, name="ana", session_id=None
        )
    for header in (
        None,
        "",
        text,
        f"Basic {text}",
        f"Bearer {text}x",
        f"Bearer {text} ",
        "Bearer",
        "Bearer ",
    ):
        assert await identify_bearer(office.context, header) is None


@promise("token:revocable")
async def test_a_token_counts_until_it_is_revoked_or_its_time_is_over(office: Office) -> None:
    lasting, text = await create_token(office.context, role=TokenRole.PERSON, name="ana", by=PERSON)
    _, brief = await create_token(office.context, role=TokenRole.PERSON, name="ana", ttl_s=10, by=PERSON)
    assert await identify_bearer(office.context, f"Bearer {brief}") is not None
    office.clock.advance(10)
    assert await identify_bearer(office.context, f"Bearer {brief}") is None
    assert await identify_bearer(office.context, f"Bearer {text}") is not None
    await revoke_token(office.context, lasting.id, by=PERSON)
    assert await identify_bearer(office.context, f"Bearer {text}") is None
    with pytest.raises(NotFound):
        await revoke_token(office.context, TokenId("0" * 12), by=PERSON)


@promise("token:revocable")
async def test_a_token_ends_with_its_session(office: Office) -> None:
    session = await office.session()
    _, text = await create_token(office.context, role=ROLE, name="a", session_id=session.id, by=PERSON)
    found = await identify_bearer(office.context, f"Bearer {text}")
    assert found is not None
    assert found.session_id == session.id
    await office.context.store.sessions.end(session.id, at=office.clock.now())
    assert await identify_bearer(office.context, f"Bearer {text}") is None


async def test_a_token_has_the_role_of_its_session_and_no_other(office: Office) -> None:
    session = await office.session()
    with pytest.raises(Conflict, match="role"):
        await create_token(office.context, role=TokenRole.CHILD, name="a", session_id=session.id, by=PERSON)
    with pytest.raises(NotFound):
        await create_token(office.context, role=ROLE, name="a", session_id=SessionId("none"), by=PERSON)
    with pytest.raises(Invalid, match="which"):
        await create_token(office.context, role=ROLE, name="a", by=PERSON)
    with pytest.raises(Invalid, match="no session"):
        await create_token(office.context, role=TokenRole.PERSON, name="a", session_id=session.id, by=PERSON)
    await end_session(office.context, session)
    with pytest.raises(Conflict, match="ended"):
        await create_token(office.context, role=ROLE, name="a", session_id=session.id, by=PERSON)


@pytest.mark.parametrize("name", ["", "a" * 101, "a\nb", "\u202e"])
async def test_a_name_that_cannot_be_seen_is_refused(office: Office, name: str) -> None:
    with pytest.raises(Invalid, match="name"):
        await create_token(office.context, role=TokenRole.PERSON, name=name, by=PERSON)


@pytest.mark.parametrize("ttl_s", [0, -1, 10**12])
async def test_a_time_that_is_none_is_refused_and_starts_no_session(office: Office, ttl_s: int) -> None:
    with pytest.raises(Invalid, match="seconds"):
        await create_token(office.context, role=TokenRole.PERSON, name="a", ttl_s=ttl_s, by=PERSON)
    with pytest.raises(Invalid, match="seconds"):
        await make(office, "new", ttl_s=ttl_s)
    assert await office.context.store.sessions.get(SessionId("new")) is None


async def test_a_session_is_started_for_its_token_and_ends_when_that_is_revoked(office: Office) -> None:
    await make(office, "above")
    token, text = await make(office, "below", role=TokenRole.CHILD, parent_id="above")
    session = await office.context.store.sessions.get(SessionId("below"))
    assert session is not None
    assert (session.parent_id, session.role, session.is_agent, session.process) == (
        "above",
        TokenRole.CHILD,
        True,
        None,
    )
    assert session.principal == f"token:{token.id}"
    second, other = await make(office, "below", role=TokenRole.CHILD)
    await revoke_token(office.context, second.id, by=PERSON)
    assert await identify_bearer(office.context, f"Bearer {other}") is None
    assert await identify_bearer(office.context, f"Bearer {text}") is not None
    await revoke_token(office.context, token.id, by=PERSON)
    ended = await office.context.store.sessions.get(SessionId("below"))
    assert ended is not None
    assert ended.ended_at is not None


async def test_a_session_keeps_the_parent_that_it_has(office: Office) -> None:
    await office.session()
    await make(office, "above")
    with pytest.raises(Conflict, match="parent"):
        await make(office, SESSION, parent_id="above")
    with pytest.raises(NotFound):
        await make(office, "new", parent_id="none")


async def make(
    office: Office,
    session_id: str,
    *,
    role: TokenRole = ROLE,
    parent_id: str | None = None,
    ttl_s: int | None = None,
) -> tuple[Token, str]:
    return await create_agent_token(
        office.context,
        role=role,
        name=session_id,
        session_id=SessionId(session_id),
        parent_id=None if parent_id is None else SessionId(parent_id),
        workspace=str(office.workspace),
        ttl_s=ttl_s,
        by=PERSON,
    )
