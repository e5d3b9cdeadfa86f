"""`pml doctor` and persons' tokens: which are about to end, which never do, and the one that is given."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pml.cli.checks.setup import Status, check_tokens
from pml.core.sessions.token import Token, TokenId, TokenRole
from tests.commands import Pml
from tests.promises import promise

NOW = datetime(2027, 1, 31, 8, tzinfo=UTC)


def token(*, made_days: float, lasts_days: float | None, role: TokenRole = TokenRole.PERSON) -> Token:
    created = NOW - timedelta(days=made_days)
    ends = None if lasts_days is None else created + timedelta(days=lasts_days)
    return Token(id=TokenId("a1"), role=role, name="phone", hash="", created_at=created, expires_at=ends)


@promise("token:persons-end")
@pytest.mark.parametrize(
    ("made_days", "lasts_days", "status", "word"),
    [
        (0, 30, Status.OK, "none about to end"),
        (22.9, 30, Status.OK, "none about to end"),
        (23.1, 30, Status.WARN, "the token a1 of phone ends at 2027-02-07"),
        (31, 30, Status.OK, "of people"),
        (0.5, 1, Status.OK, "none about to end"),
        (0.9, 1, Status.WARN, "ends at"),
        (99, None, Status.OK, "has no end"),
    ],
)
def test_a_token_that_is_about_to_end_is_a_warning(
    made_days: float, lasts_days: float | None, status: Status, word: str
) -> None:
    [check] = check_tokens([token(made_days=made_days, lasts_days=lasts_days)], NOW)
    assert (check.status, word in check.message) == (status, True)


def test_tokens_of_agents_are_not_told_of() -> None:
    [check] = check_tokens([token(made_days=29, lasts_days=30, role=TokenRole.SESSION)], NOW)
    assert check.status is Status.OK


def test_the_token_that_is_given_is_looked_at(
    pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.touch(0o600)

    def said() -> list[str]:
        monkeypatch.setenv("PML_TOKEN_FILE", str(path))
        checks = pml("doctor", "--json", "--quick").json["checks"]
        return [each["status"] for each in checks if each["name"] == "token file"]

    path.write_text(pml("token", "create", "--role", "person", "--json").json["token"])
    assert said() == ["ok"]
    path.write_text("nothing")
    assert said() == ["warn"]
