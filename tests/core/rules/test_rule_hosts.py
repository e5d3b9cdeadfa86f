"""The `host` matcher: URLs dressed up as what they are not, judged for an allow and for a deny."""

import pytest

from pml.core.rules.matchers import Reach, RuleInvalid, parse_matcher
from pml.core.values import Json
from tests.core.judging import NARROW, WIDE, allows, denies, parse
from tests.promises import promise

GITHUB = [
    "https://api.github.com",
    "https://api.github.com/",
    "HTTPS://API.GitHub.com/x?y=@evil.com#z",
    "http://api.github.com:8080/x",
    "wss://api.github.com./x",
    "https://api.github.com?@evil.com",
    "https://api.github.com#@evil.com",
    "https://api.github.com/@evil.com",
    ["https://api.github.com/a", ["ws://api.github.com/b"]],
]


@promise("rules:hosts-parsed")
@pytest.mark.parametrize("value", GITHUB)
@pytest.mark.parametrize("glob", ["api.github.com", "*.github.com", "API.github.com.", "ap?.github.com"])
def test_a_host_is_found_however_the_url_is_written(value: Json, glob: str) -> None:
    assert allows({"host": glob}, value)
    assert denies({"host": glob}, value)


@promise("rules:hosts-parsed")
@pytest.mark.parametrize(
    "value",
    [
        "https://api.github.com.evil.com",
        "https://api.github.com-evil.com",
        "https://evil.com/api.github.com",
        "https://evil.com?https://api.github.com",
        "https://evil.com#api.github.com",
        "https://xapi.github.com",
        "https://api-github.com",
        "https://github.com",
        "http://[::1]/api.github.com",
    ],
)
def test_a_look_alike_host_is_another_host(value: str) -> None:
    assert not allows({"host": "api.github.com"}, value)
    assert not denies({"host": "api.github.com"}, value)


UNTELLABLE_URLS: list[Json] = [
    "https://api.github.com@evil.com",
    "https://evil.com@api.github.com",
    "https://user:pass@api.github.com/",
    "https://evil.com\\@api.github.com",
    "https://api.github.com\\.evil.com",
    "https:\\\\api.github.com",
    "https://api.github.com%2eevil.com",
    "https://api.github.com /",
    "https://api.github\t.com",
    "https://api.github.com/a b",
    "https://api.github.com\n",
    "https://api.github.com\u3002evil.com",
    "https://api.g\u0456thub.com",
    "https://api.github.com/\u00e9",
    "https://api.github.com:99999",
    "https://api.github.com:",
    "https://api.github.com:80:80",
    "https://api.github.com:x",
    "https://api..github.com",
    "https://.github.com",
    "https://.",
    "https://",
    "https:///api.github.com",
    "https:/api.github.com",
    "https:api.github.com",
    "//api.github.com",
    "api.github.com",
    "ftp://api.github.com",
    "javascript://api.github.com",
    "http://2130706433",
    "http://0x7f.1",
    "http://0x7f000001",
    "http://127.1",
    "http://010.0.0.1",
    "http://1.2.3.4.5",
    "http://1.2.3.256",
    "http://[::1",
    "http://[fe80::1%25eth0]",
    "http://[zz]",
    "",
    None,
    False,
    1,
    {"url": "https://api.github.com"},
]


@promise("rules:hosts-parsed")
@promise("rules:doubt-denies")
@pytest.mark.parametrize("value", UNTELLABLE_URLS)
def test_a_url_without_one_certain_host_is_never_allowed_and_always_denied(value: Json) -> None:
    assert not allows({"host": "*"}, value)
    assert denies({"host": "unrelated.example"}, value)
    assert not allows({"host": "*"}, ["https://api.github.com", value])
    assert denies({"host": "unrelated.example"}, ["https://api.github.com", value])


def test_addresses_are_compared_in_their_canonical_spelling() -> None:
    assert allows({"host": "127.0.0.1"}, "http://127.0.0.1:80/")
    assert denies({"host": "127.*"}, "http://127.0.0.1./")
    assert allows({"host": "0:0:0:0:0:0:0:1"}, "http://[::1]:80")
    assert denies({"host": "2001:DB8::1"}, "http://[2001:0db8:0::0001]/")


@promise("rules:hosts-parsed")
@pytest.mark.parametrize(
    "address",
    [
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:7f00:0001:ab:c::d",
    ],
)
def test_an_ipv4_address_inside_of_an_ipv6_one_is_both(address: str) -> None:
    url = f"http://[{address}]/"
    for glob in ("127.0.0.1", address):
        assert denies({"host": glob}, url)
        assert not allows({"host": glob}, url)
    assert allows({"host": "*"}, url)


@pytest.mark.parametrize("address", ["::", "::1", "64:ff9b:2::7f00:1", "2001:db8::7f00:1", "2003:7f00:1::"])
def test_an_ipv6_address_of_its_own_is_no_ipv4_address(address: str) -> None:
    url = f"http://[{address}]/"
    assert allows({"host": address}, url)
    assert not denies({"host": "*.*.*.*"}, url)


def test_a_name_is_not_the_address_it_may_have() -> None:
    assert not denies({"host": "127.0.0.1"}, "http://localhost/")
    assert not denies({"host": "localhost"}, "http://127.0.0.1/")


@pytest.mark.parametrize(
    "glob",
    [
        *"https://api.github.com api.github.com/x api.github.com:443 u@h é.com [::1]".split(),
        *r"a\b a%2eb 127.1 a..b . fe80::*".split(),
        *("a b", " ", "", 7, None),
    ],
)
@pytest.mark.parametrize("reach", Reach)
def test_what_is_no_host_is_refused(glob: Json, reach: Reach) -> None:
    with pytest.raises(RuleInvalid) as caught:
        parse("it", {"host": glob}, reach=reach)
    assert caught.value.pointer == ("host",)


@promise("rules:hosts-parsed")
@pytest.mark.parametrize("glob", ["api.github.com*", "api.github.*", "10.0.0.*", "example.co?", "*.*"])
def test_an_allow_with_an_open_end_is_refused_and_a_deny_is_not(glob: str) -> None:
    with pytest.raises(RuleInvalid, match="the end decides whose host it is"):
        parse("it", {"host": glob}, reach=NARROW)
    parse("it", {"host": glob}, reach=WIDE)


@promise("rules:hosts-parsed")
@pytest.mark.parametrize("glob", ["*github.com", "*hub.com", "a.*b.com"])
def test_an_allow_whose_star_is_no_whole_label_is_refused(glob: str) -> None:
    with pytest.raises(RuleInvalid, match="merely ends so"):
        parse_matcher("url", {"host": glob}, reach=Reach.NARROW, base_dir="/repo", home="/home/ada")
    parse_matcher("url", {"host": glob}, reach=Reach.WIDE, base_dir="/repo", home="/home/ada")
