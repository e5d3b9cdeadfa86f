"""Where a registry may be, and where it may lead."""

from collections.abc import Sequence

import pytest

from pml.core.errors import Invalid
from pml.registry.client.addresses import check_hop, registry_url
from pml.web.hosts import is_loopback
from tests.promises import promise

NAMES = {
    "other.example": ["93.184.216.34"],
    "inside.example": ["93.184.216.34", "10.0.0.7"],
    "rebound.example": ["127.0.0.1"],
    "2130706433": ["127.0.0.1"],
    "mapped.example": ["::ffff:192.168.0.1"],
    "scoped.example": ["fe80::1%eth0"],
    "cloud.example": ["169.254.169.254"],
    "odd.example": ["no address"],
}


async def resolve(host: str) -> Sequence[str]:
    return NAMES.get(host, [host] if host[0].isdigit() or ":" in host else [])


@promise("registry:redirects-stay-safe")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://r.example/a", "http://r.example/a"),
        ("https://r.example/a", "http://127.0.0.1/a"),
        ("https://r.example/a", "https://127.0.0.1/a"),
        ("https://r.example/a", "https://127.9.9.9/a"),
        ("https://r.example/a", "https://[::1]/a"),
        ("https://r.example/a", "https://[::ffff:127.0.0.1]/a"),
        ("https://r.example/a", "https://localhost/a"),
        ("https://r.example/a", "https://LOCALHOST./a"),
        ("https://r.example/a", "https://x.localhost/a"),
        ("https://r.example/a", "https://10.1.2.3/a"),
        ("https://r.example/a", "https://192.168.1.1/a"),
        ("https://r.example/a", "https://0.0.0.0/a"),
        ("https://r.example/a", "https://100.64.0.1/a"),
        ("https://r.example/a", "https://224.0.0.1/a"),
        ("https://r.example/a", "https://2130706433/a"),
        ("https://r.example/a", "https://inside.example/a"),
        ("https://r.example/a", "https://rebound.example/a"),
        ("https://r.example/a", "https://mapped.example/a"),
        ("https://r.example/a", "https://scoped.example/a"),
        ("https://r.example/a", "https://cloud.example/a"),
        ("https://r.example/a", "https://odd.example/a"),
        ("https://r.example/a", "https://user:secret@other.example/a"),
        ("https://r.example/a", "file:///etc/passwd"),
        ("https://r.example/a", "https://r.example:0/a"),
        ("https://r.example/a", "https://r.example\\@other.example/a"),
        ("https://r.example/a", "https://[::1/a"),
        ("https://10.0.0.1/a", "https://10.0.0.2/a"),
        ("https://127.0.0.1/a", "http://127.0.0.1/a"),
        ("http://127.0.0.1/a", "http://other.example/a"),
        ("http://127.0.0.1/a", "http://10.0.0.1/a"),
    ],
)
async def test_a_hop_to_plain_http_or_inwards_is_refused(before: str, after: str) -> None:
    with pytest.raises(Invalid):
        await check_hop(before, after, resolve=resolve)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://r.example/a", "https://r.example/b"),
        ("https://r.example/a", "https://other.example/b"),
        ("https://r.example/a", "https://only-the-proxy-knows.example/b"),
        ("https://10.0.0.1/a", "https://10.0.0.1/b"),
        ("http://127.0.0.1:1/a", "http://127.0.0.1:2/b"),
        ("http://127.0.0.1/a", "http://localhost/b"),
        ("http://127.0.0.1/a", "https://other.example/b"),
    ],
)
async def test_a_hop_outwards_or_within_this_machine_is_followed(before: str, after: str) -> None:
    await check_hop(before, after, resolve=resolve)


@pytest.mark.parametrize(
    "url",
    [
        "http://r.example",
        "http://10.0.0.1",
        "http://127.0.0.1.r.example",
        "https://user:secret@r.example",
        "https://r.example?x=1",
        "https://r.example#x",
        "ftp://r.example",
        "https://",
        "https://r.example:port",
        "https://r.example/\u202egro",
    ],
)
def test_a_registry_that_cannot_be_trusted_on_the_way_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        registry_url(url)
    assert "secret" not in caught.value.message


def test_a_registry_is_https_anywhere_and_http_on_this_machine() -> None:
    urls = ["https://r.example/", "https://r.example/deep/", "http://127.0.0.1:4446", "http://[::1]:1"]
    assert [registry_url(url) for url in urls] == [
        "https://r.example",
        "https://r.example/deep",
        "http://127.0.0.1:4446",
        "http://[::1]:1",
    ]
    assert not is_loopback("127.0.0.1.r.example")
