"""What installers get of the user's environment: how registries are reached, and no key of anything else."""

from pml.install.environment import npm_surroundings, pypi_surroundings
from tests.promises import promise

KEYS = {
    "ANTHROPIC_API_KEY": "1",
    "AWS_SECRET_ACCESS_KEY": "2",
    "GITHUB_TOKEN": "3",
    "NPM_TOKEN": "4",
    "PML_HOME": "5",
    "LD_PRELOAD": "6",
    "NODE_OPTIONS": "7",
    "DENO_AUTH_TOKENS": "8",
    "UV_PUBLISH_TOKEN": "9",
    "UV_PUBLISH_PASSWORD": "10",
    "npm_config_ignore_scripts": "false",
    "npm_config_script_shell": "/bin/evil",
    "DENO_DIR": "/shared",
    "UV_CACHE_DIR": "/shared",
    "PYTHONPATH": "/evil",
}
NETWORK = {
    "HOME": "/home/me",
    "PATH": "/bin",
    "https_proxy": "http://proxy.invalid",
    "NO_PROXY": "a.invalid",
    "SSL_CERT_FILE": "/ca.pem",
}


@promise("install:settings-reach-installers-only")
def test_only_what_reaches_npm_registries_reaches_deno() -> None:
    settings = {
        "NPM_CONFIG_REGISTRY": "https://mirror.invalid",
        "npm_config_userconfig": "/home/me/npmrc",
        "npm_config_@mine:registry": "https://mine.invalid",
    }
    assert npm_surroundings(KEYS | NETWORK | settings, npmrc="") == {
        **NETWORK,
        **settings,
        "DENO_TLS_CA_STORE": "system,mozilla",
    }


def test_a_variable_that_the_users_npmrc_refers_to_is_for_its_registry() -> None:
    got = npm_surroundings(KEYS, npmrc="//mine.invalid/:_authToken=${NPM_TOKEN}\n//b.invalid/:_auth=${X?}\n")
    assert got == {"NPM_TOKEN": "4", "DENO_TLS_CA_STORE": "system,mozilla"}


def test_authorities_that_node_was_told_of_are_told_to_deno() -> None:
    got = npm_surroundings({"NODE_EXTRA_CA_CERTS": "/a.pem"}, npmrc="")
    assert got["DENO_CERT"] == "/a.pem"
    both = npm_surroundings(
        {"NODE_EXTRA_CA_CERTS": "/a", "DENO_CERT": "/b", "DENO_TLS_CA_STORE": "x"}, npmrc=""
    )
    assert (both["DENO_CERT"], both["DENO_TLS_CA_STORE"]) == ("/b", "x")


@promise("install:settings-reach-installers-only")
def test_only_what_reaches_python_indexes_reaches_uv() -> None:
    settings = {
        "UV_INDEX_URL": "https://mirror.invalid",
        "UV_DEFAULT_INDEX": "https://mirror.invalid",
        "UV_INDEX": "mine=https://mine.invalid",
        "UV_INDEX_MINE_USERNAME": "me",
        "UV_INDEX_MINE_PASSWORD": "word",
        "UV_SYSTEM_CERTS": "1",
        "PIP_INDEX_URL": "https://mirror.invalid",
        "PIP_CERT": "/ca.pem",
        "NETRC": "/netrc",
    }
    assert pypi_surroundings(KEYS | NETWORK | settings) == NETWORK | settings
