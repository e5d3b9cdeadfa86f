"""What every store does with tokens."""

import asyncio

import msgspec
import pytest

from pml.core.approvals.record import SessionId
from pml.core.audit.entries import token_created, token_revoked
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.ports.store import Store
from pml.core.sessions.token import Token, TokenId, TokenRole, identify
from tests.builders import NOW, PERSON, SESSION, later, make_session, make_token
from tests.contract.steps import entries_of
from tests.promises import promise

SECRET = "k" * 43
OTHER = SessionId("session-2")


@pytest.mark.parametrize("role", TokenRole)
async def test_a_token_is_stored_as_it_was_made_and_recorded_with_who_made_it(
    store: Store, role: TokenRole
) -> None:
    token = make_token(role=role, name="phöne", expires_at=later(60))

    await store.tokens.add(token, by=PERSON)

    assert await store.tokens.get(token.id) == token
    assert await store.tokens.get(TokenId("0" * 12)) is None
    assert await entries_of(store) == [
        token_created(token.id, role, "phöne", at=NOW, by=PERSON, session_id=token.session_id)
    ]


@promise("token:kept-as-hash")
async def test_neither_a_stored_token_nor_the_log_tells_the_secret(store: Store) -> None:
    token = make_token(secret=SECRET)
    await store.tokens.add(token, by=None)
    await store.tokens.revoke(token.id, at=later(1), by=None)

    log = repr(await entries_of(store))

    assert SECRET not in repr(await store.tokens.all())
    assert SECRET not in log
    assert token.hash not in log


@promise("token:kept-as-hash")
async def test_a_stored_token_is_proven_by_its_secret_and_by_nothing_that_is_stored(store: Store) -> None:
    token = make_token(secret=SECRET)
    await store.tokens.add(token, by=None)

    stored = await store.tokens.get(token.id)

    assert identify(stored, SECRET, now=NOW) is not None
    assert identify(stored, token.hash, now=NOW) is None


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (
            Token(id=TokenId("a"), role=TokenRole.CHILD, name="n", hash="", created_at=NOW),
            "no hash",
        ),
        (
            Token(
                id=TokenId("a"),
                role=TokenRole.PERSON,
                name="n",
                hash="h",
                session_id=SESSION,
                created_at=NOW,
            ),
            "a person's",
        ),
        (
            Token(
                id=TokenId("a"),
                role=TokenRole.LOGIN,
                name="n",
                hash="h",
                session_id=SESSION,
                created_at=NOW,
                expires_at=later(1),
            ),
            "a person's",
        ),
        (
            Token(id=TokenId("a"), role=TokenRole.LOGIN, name="n", hash="h", created_at=NOW),
            "must have an end",
        ),
    ],
    ids=["no hash", "a person's with a session", "a login's with a session", "a login's without end"],
)
async def test_a_token_that_makes_no_sense_is_refused(store: Store, token: Token, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        await store.tokens.add(token, by=PERSON)

    assert await store.tokens.all() == []
    assert await entries_of(store) == []


async def test_the_id_of_a_token_is_given_once(store: Store) -> None:
    first = make_token(1)
    await store.tokens.add(first, by=PERSON)

    with pytest.raises(Conflict):
        await store.tokens.add(make_token(1, role=TokenRole.PERSON, secret=SECRET), by=PERSON)

    assert await store.tokens.all() == [first]
    assert len(await entries_of(store)) == 1


async def test_tokens_are_listed_oldest_first_revoked_ones_too(store: Store) -> None:
    young, old, same = make_token(1, created_at=later(5)), make_token(3), make_token(2)
    for token in (young, old, same):
        await store.tokens.add(token, by=None)
    await store.tokens.revoke(young.id, at=later(6), by=PERSON)

    assert [token.id for token in await store.tokens.all()] == [same.id, old.id, young.id]


async def test_a_revoked_token_counts_no_longer(store: Store) -> None:
    token, other = make_token(1, secret=SECRET), make_token(2, secret=SECRET)
    await store.tokens.add(token, by=None)
    await store.tokens.add(other, by=None)

    await store.tokens.revoke(token.id, at=later(1), by=PERSON)

    assert identify(await store.tokens.get(token.id), SECRET, now=later(1)) is None
    assert identify(await store.tokens.get(other.id), SECRET, now=later(1)) is not None
    assert (await entries_of(store))[2:] == [
        token_revoked(token.id, at=later(1), by=PERSON, session_id=SESSION)
    ]


async def test_a_token_that_was_revoked_stays_as_it_was_and_an_unknown_one_is_not_found(store: Store) -> None:
    token = make_token(1)
    await store.tokens.add(token, by=None)
    await store.tokens.revoke(token.id, at=later(1), by=PERSON)
    revoked, log = await store.tokens.get(token.id), await entries_of(store)

    await store.tokens.revoke(token.id, at=later(2), by=None)
    await store.tokens.revoke_of(SESSION, at=later(3))
    with pytest.raises(NotFound, match="no token `ffffffffffff`"):
        await store.tokens.revoke(TokenId("f" * 12), at=later(2), by=PERSON)

    assert await store.tokens.get(token.id) == revoked
    assert await entries_of(store) == log


async def test_revoking_the_tokens_of_a_session_leaves_those_of_others(store: Store) -> None:
    person = make_token(3, role=TokenRole.PERSON)
    theirs = make_token(4, session_id=OTHER)
    for token in (make_token(1), make_token(2), person, theirs):
        await store.tokens.add(token, by=None)

    await store.tokens.revoke_of(SESSION, at=later(1))

    tokens = await store.tokens.all()
    assert [token.revoked_at for token in tokens] == [later(1), later(1), None, None]
    assert (await entries_of(store))[4:] == [
        token_revoked(token.id, at=later(1), by=None, session_id=SESSION) for token in tokens[:2]
    ]


# --- exchanging one for another


def make_login(n: int = 1) -> Token:
    return make_token(n, role=TokenRole.LOGIN, expires_at=later(60))


def make_visit(n: int = 2, *, at: float = 1) -> Token:
    return make_token(n, role=TokenRole.PERSON, secret=SECRET, created_at=later(at))


async def test_an_exchange_revokes_one_token_and_adds_the_other_with_who_did_it(store: Store) -> None:
    login, visit = make_login(), make_visit()
    await store.tokens.add(login, by=PERSON)

    assert await store.tokens.exchange(login.id, visit, by=PERSON)

    spent = msgspec.structs.replace(login, revoked_at=visit.created_at)
    assert await store.tokens.all() == [spent, visit]
    assert (await entries_of(store))[1:] == [
        token_created(visit.id, TokenRole.PERSON, visit.name, at=later(1), by=PERSON, session_id=None),
        token_revoked(login.id, at=later(1), by=PERSON, session_id=None),
    ]


@promise("login:link-works-once")
async def test_of_several_exchanges_at_the_same_time_one_wins_and_the_others_add_nothing(
    store: Store,
) -> None:
    login = make_login()
    await store.tokens.add(login, by=PERSON)
    visits = [make_visit(n) for n in range(2, 8)]

    won = await asyncio.gather(*(store.tokens.exchange(login.id, visit, by=PERSON) for visit in visits))

    assert sorted(won) == [False] * 5 + [True]
    assert len(await store.tokens.all()) == 2
    assert len(await entries_of(store)) == 3


@promise("login:link-works-once")
async def test_a_token_that_counts_no_longer_is_exchanged_for_nothing(store: Store) -> None:
    over, revoked = make_login(1), make_login(2)
    for token in (over, revoked):
        await store.tokens.add(token, by=PERSON)
    await store.tokens.revoke(revoked.id, at=later(1), by=PERSON)
    before, log = await store.tokens.all(), await entries_of(store)

    assert not await store.tokens.exchange(over.id, make_visit(3, at=60), by=PERSON)
    assert not await store.tokens.exchange(revoked.id, make_visit(4, at=2), by=PERSON)
    assert not await store.tokens.exchange(TokenId("f" * 12), make_visit(5), by=PERSON)

    assert await store.tokens.all() == before
    assert await entries_of(store) == log


async def test_an_exchange_for_a_token_that_cannot_be_stored_leaves_the_first_as_it_was(store: Store) -> None:
    login, taken = make_login(1), make_visit(2)
    for token in (login, taken):
        await store.tokens.add(token, by=PERSON)

    with pytest.raises(Conflict):
        await store.tokens.exchange(login.id, make_visit(2, at=3), by=PERSON)

    assert await store.tokens.all() == [login, taken]
    assert len(await entries_of(store)) == 2


async def test_what_counts_no_longer_is_forgotten_after_its_time_unless_it_is_of_a_session(
    store: Store,
) -> None:
    over, spent, both, ended_late, kept, endless, an_agents = (
        make_login(1),
        make_visit(2),
        make_token(6, role=TokenRole.PERSON, expires_at=later(100)),
        make_token(7, role=TokenRole.PERSON, expires_at=later(60)),
        make_token(3, role=TokenRole.PERSON, expires_at=later(100)),
        make_visit(4),
        make_token(5, role=TokenRole.CHILD, session_id=SESSION, expires_at=later(60)),
    )
    for token in (over, spent, both, ended_late, kept, endless, an_agents):
        await store.tokens.add(token, by=PERSON)
    for token, at in ((spent, 60), (both, 60), (ended_late, 100)):
        await store.tokens.revoke(token.id, at=later(at), by=PERSON)
    log = await entries_of(store)

    await store.tokens.forget(older_than=later(60))
    assert len(await store.tokens.all()) == 7
    await store.tokens.forget(older_than=later(61))

    assert {token.id for token in await store.tokens.all()} == {kept.id, endless.id, an_agents.id}
    assert await entries_of(store) == log


async def test_no_session_has_the_role_of_a_login(store: Store) -> None:
    with pytest.raises(Invalid, match="role login"):
        await store.sessions.start(make_session(role=TokenRole.LOGIN))

    assert await store.sessions.live() == []
    assert await entries_of(store) == []
