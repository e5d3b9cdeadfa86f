"""Logging in by a link: once, in time, and by whoever holds it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from pml.core.approvals.record import Channel, Decider, DeciderKind, OwnerId
from pml.core.audit.entries import token_created, token_revoked
from pml.core.errors import Conflict, Invalid, NotFound, PmlError, Unavailable
from pml.core.ports.queries import AuditQuery
from pml.core.sessions.token import Identity, Token, TokenRole, read_token
from pml.service.sessions.logins import LINK_S, VISIT_S, log_in, login_link, make_login, why_spent
from pml.service.sessions.tokens import create_token, identify_bearer, revoke_token
from pml.store.sqlite.store import SqliteStore
from pml.store.sqlite.writer import Transaction
from tests.builders import PERSON
from tests.promises import promise
from tests.service.offices import Office

ANA = Decider(kind=DeciderKind.PERSON, id="ana", channel=Channel.INBOX)


async def enter(office: Office, text: str) -> tuple[Token, str]:
    identity = await identify_bearer(office.context, f"Bearer {text}")
    assert identity is not None
    return await log_in(office.context, identity)


async def told(office: Office, text: str) -> str | None:
    """Return what whoever comes with `text` is told of their link."""
    error = await why_spent(office.context, f"Bearer {text}")
    return None if error is None else error.message


def changed(text: str) -> str:
    """Return the token with another secret."""
    return text[:-1] + ("A" if text[-1] != "A" else "B")


async def test_a_login_is_exchanged_for_a_persons_token_of_thirty_days(office: Office) -> None:
    text = await make_login(office.context, name="ana", by=PERSON)
    login = await identify_bearer(office.context, f"Bearer {text}")
    assert login is not None
    assert (login.role, login.name, login.session_id) == (TokenRole.LOGIN, "ana", None)

    token, visit = await log_in(office.context, login)

    now = office.clock.now()
    assert token.expires_at == now + timedelta(seconds=VISIT_S)
    assert await identify_bearer(office.context, f"Bearer {visit}") == Identity(
        token_id=token.id, role=TokenRole.PERSON, name="ana", session_id=None
    )
    entries = [link.entry for link in await office.context.store.audit.list(AuditQuery())]
    assert entries == [
        token_created(login.token_id, TokenRole.LOGIN, "ana", at=now, by=PERSON, session_id=None),
        token_created(token.id, TokenRole.PERSON, "ana", at=now, by=ANA, session_id=None),
        token_revoked(login.token_id, at=now, by=ANA, session_id=None),
    ]
    for secret in (text[-43:], visit[-43:]):
        assert secret not in repr((entries, await office.context.store.tokens.all()))


@promise("login:link-works-once")
async def test_a_link_that_was_used_is_refused_and_its_holder_told(office: Office) -> None:
    text = await make_login(office.context, name="ana", by=PERSON)
    assert await told(office, text) is None
    await enter(office, text)
    assert await identify_bearer(office.context, f"Bearer {text}") is None
    assert "used already" in (await told(office, text) or "")


@promise("login:link-works-once")
async def test_of_two_browsers_at_the_same_time_one_gets_in(office: Office) -> None:
    text = await make_login(office.context, name="ana", by=PERSON)
    identity = await identify_bearer(office.context, f"Bearer {text}")
    assert identity is not None
    both = await asyncio.gather(*(log_in(office.context, identity) for _ in range(2)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in both) == ["Conflict", "tuple"]
    (refused,) = [each for each in both if isinstance(each, Conflict)]
    assert "used already" in refused.message
    assert refused.hint is not None
    assert "pml inbox --link" in refused.hint
    roles = [token.role for token in await office.context.store.tokens.all()]
    assert sorted(roles) == [TokenRole.LOGIN, TokenRole.PERSON]


@promise("login:link-works-once")
async def test_a_link_lasts_an_hour_and_not_a_moment_longer(office: Office) -> None:
    text = await make_login(office.context, name="ana", by=PERSON)
    office.clock.advance(LINK_S - 1)
    identity = await identify_bearer(office.context, f"Bearer {text}")
    assert identity is not None
    office.clock.advance(1)
    assert await identify_bearer(office.context, f"Bearer {text}") is None
    assert "over" in (await told(office, text) or "")
    with pytest.raises(NotFound, match="over"):  # its time ended after it was let in
        await log_in(office.context, identity)
    assert [token.role for token in await office.context.store.tokens.all()] == [TokenRole.LOGIN]


async def test_a_revoked_link_opens_nothing(office: Office) -> None:
    text = await make_login(office.context, name="ana", by=PERSON)
    read = read_token(text)
    assert read is not None
    await revoke_token(office.context, read[0], by=PERSON)
    assert await identify_bearer(office.context, f"Bearer {text}") is None
    assert "revoked" in (await told(office, text) or "")


@promise("login:link-works-once")
@pytest.mark.parametrize("seconds", [0, LINK_S], ids=["used", "over"])
async def test_only_who_holds_the_secret_learns_that_a_link_is_spent(office: Office, seconds: int) -> None:
    text = await make_login(office.context, name="ana", by=PERSON)
    if not seconds:
        await enter(office, text)
    office.clock.advance(seconds)
    assert await told(office, text) is not None
    assert await told(office, changed(text)) is None
    assert await told(office, f"pml_{'0' * 12}_{text[-43:]}") is None
    for header in (None, "", text, f"Basic {text}", f"Bearer {text}x"):
        assert await why_spent(office.context, header) is None


async def test_of_a_token_that_is_no_login_nobody_learns_that_it_was_one(office: Office) -> None:
    token, text = await create_token(office.context, role=TokenRole.PERSON, name="ana", by=PERSON)
    await revoke_token(office.context, token.id, by=PERSON)
    _, brief = await create_token(office.context, role=TokenRole.PERSON, name="ana", ttl_s=1, by=PERSON)
    office.clock.advance(1)
    assert [await told(office, each) for each in (text, brief)] == [None, None]


async def test_a_login_speaks_for_no_session_and_has_an_end(office: Office) -> None:
    session = await office.session()
    with pytest.raises(Invalid, match="no session"):
        await create_token(
            office.context, role=TokenRole.LOGIN, name="a", session_id=session.id, ttl_s=1, by=PERSON
        )
    with pytest.raises(Invalid, match="end"):
        await create_token(office.context, role=TokenRole.LOGIN, name="a", by=PERSON)


def test_the_secret_stands_where_no_browser_sends_it() -> None:
    assert login_link("http://127.0.0.1:4445", "pml_x") == "http://127.0.0.1:4445/#login=pml_x"


@promise("login:link-works-once")
@pytest.mark.parametrize("query", ["insert_token", "revoke_token"])
async def test_a_crash_on_the_way_leaves_the_link_as_it_was_and_nobody_logged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    office = Office(await SqliteStore.open(tmp_path, OwnerId("tests")), tmp_path)
    text = await make_login(office.context, name="ana", by=PERSON)
    identity = await identify_bearer(office.context, f"Bearer {text}")
    assert identity is not None
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "run", failing_at(query, Transaction.run))
        with pytest.raises(PmlError):
            await log_in(office.context, identity)
    (login,) = await office.context.store.tokens.all()
    assert (login.role, login.revoked_at) == (TokenRole.LOGIN, None)
    await enter(office, text)
    await office.context.store.close()


def failing_at(query: str, run: Callable[..., object]) -> Callable[..., object]:
    """Return `run`, after which the named query ends everything."""

    def crash(self: Transaction, name: str, *values: object) -> object:
        done = run(self, name, *values)
        if name == query:
            raise Unavailable("the disk has gone")
        return done

    return crash
