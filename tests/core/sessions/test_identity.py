"""Tokens: read exactly, compared the same way whatever is wrong, and worth nothing when they are over."""

import hashlib
import hmac

import msgspec
import pytest

from pml.core.sessions import token as identity
from pml.core.sessions.token import (
    AGENT_ROLES,
    Identity,
    Token,
    TokenId,
    TokenRole,
    identify,
    read_token,
    secret_hash,
    token_text,
)
from tests.builders import NOW, SESSION, later, make_token
from tests.promises import promise

ID = TokenId("0123456789ab")
SECRET = "s" * 43


def test_a_token_reads_back_as_it_was_written() -> None:
    text = token_text(ID, SECRET)

    assert text == f"pml_{ID}_{SECRET}"
    assert read_token(text) == (ID, SECRET)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pml_",
        f"{ID}_{SECRET}",
        f"pml_{ID}_{SECRET}s",
        f"pml_{ID}_{SECRET[1:]}",
        f"pml_{ID[1:]}_{SECRET}",
        f"pml_{ID.upper()}_{SECRET}",
        f"pml_{ID}_{SECRET}\n",
        f" pml_{ID}_{SECRET}",
        f"pml_{ID}_{SECRET[1:]}é",
        f"PML_{ID}_{SECRET}",
    ],
)
def test_what_is_no_token_is_none(text: str) -> None:
    assert read_token(text) is None


def test_of_a_secret_only_its_hash_is_kept() -> None:
    token = make_token(secret=SECRET)

    assert token.hash == secret_hash(SECRET) == hashlib.sha256(SECRET.encode()).hexdigest()
    assert SECRET.encode() not in msgspec.json.encode(token)


@pytest.mark.parametrize("role", list(TokenRole))
def test_the_holder_of_a_token_is_known_by_it(role: TokenRole) -> None:
    token = make_token(role=role, secret=SECRET)
    session_id = SESSION if role in AGENT_ROLES else None

    assert identify(token, SECRET, now=NOW) == Identity(
        token_id=token.id, role=role, name="tests", session_id=session_id
    )


@promise("token:dead-is-nobody")
@pytest.mark.parametrize(
    ("token", "secret"),
    [
        (None, SECRET),
        (make_token(secret=SECRET), SECRET[:-1] + "x"),
        (make_token(secret=SECRET), ""),
        (make_token(secret=SECRET, expires_at=NOW), SECRET),
        (make_token(secret=SECRET, expires_at=later(-1)), SECRET),
        (msgspec.structs.replace(make_token(secret=SECRET), revoked_at=later(-1)), SECRET),
        (msgspec.structs.replace(make_token(secret=SECRET), hash=""), SECRET),
    ],
    ids=["unknown", "wrong", "empty", "over now", "over", "revoked", "without a hash"],
)
def test_a_token_that_does_not_count_is_nobodys_after_the_same_comparison(
    monkeypatch: pytest.MonkeyPatch, token: Token | None, secret: str
) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one.encode(), other.encode())

    class Watched:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(identity, "hmac", Watched)

    assert identify(token, secret, now=NOW) is None
    assert compared == [("" if token is None else token.hash, secret_hash(secret))]


def test_a_token_counts_until_its_time() -> None:
    token = make_token(secret=SECRET, expires_at=later(1))

    assert identify(token, SECRET, now=NOW) is not None
    assert identify(token, SECRET, now=later(1)) is None
