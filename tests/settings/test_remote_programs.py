"""A variable in a server's URL is pinned: with another value it is another address."""

import pytest

from pml.core.servers.remote_target import RemoteTarget, WrittenRemote
from pml.settings.programs import programs_in
from tests.promises import promise


def target(host: str, written: str = "https://${HOST}/mcp") -> RemoteTarget:
    entry = WrittenRemote(url=written, headers={}, names=("HOST",), values={"HOST": host})
    return RemoteTarget(url=f"https://{host}/mcp", written=entry)


@promise("remote:bound-to-url")
def test_another_value_in_a_url_is_another_pin() -> None:
    one, other = programs_in("/w", target("a.test")), programs_in("/w", target("b.test"))
    assert (list(one), list(other)) == (['url "https://${HOST}/mcp"'],) * 2
    assert one != other


@pytest.mark.parametrize(
    "plain", [RemoteTarget(url="https://a.test/"), target("a.test", "https://a.test/mcp")]
)
def test_a_url_without_variables_needs_no_pin_beside_its_digest(plain: RemoteTarget) -> None:
    assert programs_in("/w", plain) == {}
