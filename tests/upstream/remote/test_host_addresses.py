"""Where a host may lead: judged on the address that is connected to."""

import asyncio
import socket
from typing import Any

import pytest

from pml.core.errors import ServerFailed
from pml.upstream.remote.host_addresses import CheckedBackend, NotAllowed, address_problem
from pml.web.hosts import parse_address
from tests.promises import promise
from tests.upstream.fleets import Harbour, use
from tests.upstream.remote.rough_server import RoughServer

PUBLIC = "mcp.example.com"


@promise("remote:addresses-checked")
@pytest.mark.parametrize(
    ("host", "address", "is_allowed"),
    [
        (PUBLIC, "93.184.216.34", True),
        (PUBLIC, "2606:2800:220:1::1", True),
        (PUBLIC, "127.0.0.1", False),
        (PUBLIC, "::1", False),
        (PUBLIC, "::ffff:127.0.0.1", False),
        (PUBLIC, "10.0.0.1", False),
        (PUBLIC, "192.168.1.1", False),
        (PUBLIC, "100.64.0.1", False),
        (PUBLIC, "fd00::1", False),
        (PUBLIC, "0.0.0.0", False),
        (PUBLIC, "169.254.1.1", False),
        (PUBLIC, "fe80::1", False),
        (PUBLIC, "224.0.0.1", False),
        (PUBLIC, "64:ff9b::a00:1", False),
        (PUBLIC, "2002:7f00:1::", False),
        (PUBLIC, "::127.0.0.1", False),
        ("169.254.169.254", "169.254.169.254", False),
        (PUBLIC, "168.63.129.16", False),
        ("[fd00:ec2::254]", "fd00:ec2::254", False),
        ("files.internal", "10.0.0.1", True),
        ("files", "192.168.1.1", True),
        ("files.internal", "169.254.169.254", False),
        ("files.internal", "127.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("localhost", "10.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
    ],
)
def test_an_address_is_judged_by_what_the_url_says(host: str, address: str, is_allowed: bool) -> None:
    problem = address_problem(host, parse_address(address), may_be_private=False)
    assert (problem is None) is is_allowed, problem


def test_a_file_may_let_a_public_name_be_private_but_not_this_machine() -> None:
    for address, is_allowed in (("10.0.0.1", True), ("127.0.0.1", False), ("169.254.169.254", False)):
        problem = address_problem(PUBLIC, parse_address(address), may_be_private=True)
        assert (problem is None) is is_allowed


class Names:
    """Name servers that answer what a test says, another thing each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.answers.pop(0)]


@promise("remote:addresses-checked")
async def test_a_public_name_that_leads_to_this_machine_is_sent_nothing(
    harbour: Harbour, rough: RoughServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Names(["127.0.0.1"]))
    url = f"http://{PUBLIC}:{rough.port}/mcp"
    with pytest.raises(ServerFailed, match=r"is not reached: 127\.0\.0\.1 is this machine"):
        await use(harbour.fleet(), rough.spec(url=url, is_insecure=True), "echo")
    assert rough.seen == []


@promise("remote:addresses-checked")
async def test_a_name_is_looked_up_once_and_the_answer_that_passed_is_connected_to(
    rough: RoughServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(["10.0.0.1", "127.0.0.1"])
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names)
    stream = await CheckedBackend(may_be_private=False).connect_tcp("localhost", rough.port, 10)
    assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
    await stream.aclose()
    assert names.answers == []


async def test_nothing_is_connected_to_where_no_answer_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", Names(["10.0.0.1", "fe80::1"]))
    with pytest.raises(NotAllowed):
        await CheckedBackend(may_be_private=False).connect_tcp(PUBLIC, 443, 10)


async def test_a_proxy_of_the_users_is_used_and_never_for_this_machine(
    harbour: Harbour, rough: RoughServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{rough.port}")
    spec = rough.spec(url=f"http://{PUBLIC}/mcp", is_insecure=True)
    assert await use(harbour.fleet(), spec, "echo", a=1) == {"a": 1}
    assert rough.seen[0].path == f"http://{PUBLIC}/mcp"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert await use(harbour.fleet(), rough.spec(), "echo", a=2) == {"a": 2}
