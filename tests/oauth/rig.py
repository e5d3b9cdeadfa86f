"""A real authorization server and a real MCP server behind it, as processes; and a person with a browser."""

import json
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import httpx2
import pytest

from tests.tools import need

HERE: Final = Path(__file__).parent
CLIENTS: Final = HERE.parents[1] / ".venv" / "clients"
_HOPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """An authorization server that runs."""

    url: str

    def control(self, **wish: object) -> dict[str, Any]:
        """Make it do something wrong, and return what it was asked."""
        return httpx2.post(f"{self.url}/control", json=wish, trust_env=False).json()

    def sound(self) -> None:
        self.control(
            ttl=3600, html=False, drop_iss=False, lie_issuer=None, no_registration=False, endpoint=None
        )


@contextmanager
def running(argv: list[str]) -> Generator[dict[str, str]]:
    """Run a program that says in its first line where it is."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def issuer_running() -> Generator[Issuer]:
    if not (CLIENTS / "node_modules" / "oidc-provider").exists():
        pytest.skip("needs the npm package oidc-provider: `make .venv/clients/.ready`")
    with running([need("node"), str(HERE / "authorization_server.mjs"), str(CLIENTS)]) as told:
        yield Issuer(url=told["issuer"])


@contextmanager
def protected_running(issuer: Issuer, calls: Path) -> Generator[str]:
    with running([sys.executable, str(HERE / "protected_server.py"), issuer.url, str(calls)]) as told:
        yield told["url"]


def consent(url: str, *, visit_last: bool = True) -> str:
    """Log in and consent as a person does, hop by hop; return the address that the browser ends at."""
    with httpx2.Client(trust_env=False) as browser:
        answer = browser.get(url)
        for _ in range(_HOPS):
            if answer.status_code in (302, 303):
                target = urljoin(str(answer.url), answer.headers["location"])
                if "/callback?" in target:
                    if visit_last:
                        assert browser.get(target).status_code == 200
                    return target
                answer = browser.get(target)
                continue
            assert answer.status_code == 200, answer.text
            form = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
            assert form is not None, answer.text
            fields = dict(re.findall(r'name="(prompt|login|password)"(?:[^>]*value="([^"]*)")?', answer.text))
            given = {name: value or "ada" for name, value in fields.items()}
            answer = browser.post(urljoin(str(answer.url), form[1]), data=given)
    raise AssertionError("the login never ended")
