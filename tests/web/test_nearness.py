"""Where a URL may lead: by its spelling, and by what its name resolves to when it is asked."""

import asyncio
import socket
from typing import Any

import pytest

from pml.core.errors import Invalid, Unavailable
from pml.web.hosts import parse_address
from pml.web.nearness import Near, addresses, check_url, nearness
from tests.promises import promise

PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (PUBLIC, Near.PUBLIC),
        ("2606:2800:21f::1", Near.PUBLIC),
        ("10.1.2.3", Near.PRIVATE),
        ("192.168.0.1", Near.PRIVATE),
        ("100.64.0.1", Near.PRIVATE),
        ("fd12::1", Near.PRIVATE),
        ("127.0.0.1", Near.LOOPBACK),
        ("127.9.9.9", Near.LOOPBACK),
        ("::1", Near.LOOPBACK),
        ("::ffff:127.0.0.1", Near.LOOPBACK),
        ("64:ff9b::7f00:1", Near.LOOPBACK),
        ("64:ff9b::a00:1", Near.PRIVATE),
        ("2002:7f00:1::", Near.LOOPBACK),
        ("169.254.169.254", None),
        ("169.254.1.1", None),
        ("fe80::1", None),
        ("64:ff9b::a9fe:a9fe", None),
        ("::ffff:169.254.169.254", None),
        ("fd00:ec2::254", None),
        ("100.100.100.200", None),
        ("168.63.129.16", None),
        ("0.0.0.0", None),
        ("::", None),
        ("224.0.0.1", None),
    ],
)
def test_an_address_is_as_near_as_the_nearest_way_it_leads(text: str, near: Near | None) -> None:
    assert nearness(parse_address(text)) is near


@promise("login:urls-checked")
@pytest.mark.parametrize(
    ("url", "nearest"),
    [
        ("http://login.example/token", Near.LOOPBACK),
        ("http://10.0.0.1/token", Near.LOOPBACK),
        ("https://10.0.0.1/token", Near.PUBLIC),
        ("https://localhost/token", Near.PUBLIC),
        ("http://127.0.0.1/token", Near.PUBLIC),
        ("https://127.0.0.1/token", Near.PRIVATE),
        ("https://169.254.169.254/token", Near.LOOPBACK),
        ("https://metadata.google.internal/token", Near.LOOPBACK),
        ("https://user:secret@login.example/token", Near.PUBLIC),
        ("ftp://login.example/token", Near.PUBLIC),
        ("file:///etc/passwd", Near.LOOPBACK),
        ("javascript:alert(1)", Near.LOOPBACK),
    ],
)
def test_a_url_that_may_not_be_followed_is_refused_by_its_spelling(url: str, nearest: Near) -> None:
    with pytest.raises(Invalid) as refused:
        check_url(url, whose="the token endpoint", nearest=nearest)
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "nearest"),
    [
        ("https://login.example/token", Near.PUBLIC),
        ("https://10.0.0.1/token", Near.PRIVATE),
        ("http://localhost:9/token", Near.LOOPBACK),
        ("http://[::1]:9/token", Near.LOOPBACK),
    ],
)
def test_what_is_https_or_as_near_as_its_server_may_be_followed(url: str, nearest: Near) -> None:
    assert check_url(url, whose="the token endpoint", nearest=nearest).hostname


def resolving_to(*found: str) -> Any:
    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443)) for each in found]

    return getaddrinfo


@promise("login:urls-checked")
@pytest.mark.parametrize("near", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fe80::1"])
async def test_a_public_name_that_resolves_to_something_near_is_refused(
    monkeypatch: pytest.MonkeyPatch, near: str
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolving_to(PUBLIC, near))
    parts = check_url("https://login.example/token", whose="the token endpoint", nearest=Near.PUBLIC)

    with pytest.raises(Invalid, match="not for it to name"):
        await addresses(parts, whose="the token endpoint", nearest=Near.PUBLIC)


async def test_a_name_that_cannot_be_resolved_is_named() -> None:
    parts = check_url("https://nobody.invalid/token", whose="the token endpoint")

    with pytest.raises(Unavailable, match=r"nobody\.invalid"):
        await addresses(parts, whose="the token endpoint")
