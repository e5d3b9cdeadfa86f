"""The user's npm settings, as npm itself would read them."""

from pathlib import Path

import pytest

from pml.core.errors import Unavailable
from pml.install.npm.npmrc import authorization_for, network_of, read_npmrc, registry_for, settings_of

NPMRC = """\
; comment=1
# other=2
registry = "https://mirror.invalid/npm/"
@mine:registry=https://${HOST}/
//mine.invalid/:_authToken=${TOKEN}
//mirror.invalid/npm/:_auth=bWU6d29yZA==
//mirror.invalid/npm/deep/:username=me
//mirror.invalid/npm/deep/:_password=d29yZA==
//broken.invalid/:username=me
//broken.invalid/:_password=x
cafile=${HOME}/ca.pem
https-proxy=http://proxy.invalid
"""
ENVIRON = {"HOST": "mine.invalid", "TOKEN": "word", "HOME": "/home/me"}


def test_comments_are_no_settings_and_quotes_no_part_of_a_value() -> None:
    assert settings_of('a=1\n;b=2\n#c=3\nd = "x y"\nalone\na=2\n') == {"a": "2", "d": "x y"}


def test_what_the_environment_says_counts_over_the_file(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text("registry=https://file.invalid\ncolor=false")
    environ = {
        "HOME": str(tmp_path),
        "npm_config_registry": "https://environment.invalid",
        "npm_config_https_proxy": "http://proxy.invalid",
        "npm_config_noproxy": "a\nregistry=https://forged.invalid",
        "npm_config_ignore_scripts": "false",
    }
    assert settings_of(read_npmrc(environ)) == {
        "registry": "https://environment.invalid",
        "color": "false",
        "https-proxy": "http://proxy.invalid",
    }


def test_no_settings_are_no_error_and_a_file_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    assert read_npmrc({}) == ""
    assert read_npmrc({"HOME": str(tmp_path)}) == ""
    with pytest.raises(Unavailable, match=r"your npm settings .*: is a directory"):
        read_npmrc({"NPM_CONFIG_USERCONFIG": str(tmp_path)})


@pytest.mark.parametrize(
    ("name", "registry"),
    [
        ("plain", "https://mirror.invalid/npm/"),
        ("@other/name", "https://mirror.invalid/npm/"),
        ("@mine/name", "https://mine.invalid/"),
    ],
)
def test_a_scope_may_have_a_registry_of_its_own(name: str, registry: str) -> None:
    assert registry_for(name, NPMRC, ENVIRON) == registry
    assert registry_for(name, "", ENVIRON) is None


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("https://mine.invalid/@mine/a/-/a-1.0.0.tgz", "Bearer word"),
        ("https://mirror.invalid/npm/a.tgz", "Basic bWU6d29yZA=="),
        ("https://mirror.invalid/npm/deep/a.tgz", "Basic bWU6d29yZA=="),
        ("https://mirror.invalid/other/a.tgz", None),
        ("https://mine.invalid.evil.invalid/a.tgz", None),
        ("https://mine.invalid:8443/a.tgz", None),
        ("https://broken.invalid/a.tgz", None),
    ],
)
def test_credentials_are_for_the_place_they_were_given_for(url: str, header: str | None) -> None:
    assert authorization_for(url, NPMRC, ENVIRON) == header


def test_deno_learns_of_a_proxy_and_authorities_that_only_npm_was_told_of() -> None:
    assert network_of(NPMRC, ENVIRON) == {
        "DENO_CERT": "/home/me/ca.pem",
        "HTTPS_PROXY": "http://proxy.invalid",
    }
    assert network_of(NPMRC, {"DENO_CERT": "/x", "https_proxy": "http://other.invalid"}) == {}
