"""A home with no logins, an authorization server and an MCP server behind it, sound as a test begins."""

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pml.core.ports.server_logins import LoginWish
from pml.oauth.open_logins import OpenLogins
from pml.settings.server_logins import DiskServerLogins
from tests.oauth.fakes import MemoryKeyring
from tests.oauth.rig import Issuer, issuer_running, protected_running


@pytest.fixture(scope="module")
def _issuer() -> Generator[Issuer]:
    with issuer_running() as issuer:
        yield issuer


@pytest.fixture
def issuer(_issuer: Issuer) -> Issuer:
    _issuer.sound()
    return _issuer


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls") / "calls"


@pytest.fixture(scope="module")
def protected(_issuer: Issuer, calls: Path) -> Generator[str]:
    """The URL of the MCP server."""
    with protected_running(_issuer, calls) as url:
        yield url


@pytest.fixture
def keyring() -> MemoryKeyring:
    return MemoryKeyring()


@pytest.fixture
def logins(home: Path, keyring: MemoryKeyring) -> DiskServerLogins:
    return DiskServerLogins(home / ".pml", keyring)


@pytest.fixture
def opened(logins: DiskServerLogins) -> OpenLogins:
    return OpenLogins(logins, now=lambda: datetime.now(UTC))


@pytest.fixture
def wish(protected: str, issuer: Issuer) -> LoginWish:
    return LoginWish(server="vault", url=protected, shown_url=protected)
