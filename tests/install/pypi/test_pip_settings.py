"""The user's pip settings reach uv, unless uv was told itself."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pml.core.errors import Invalid
from pml.install.pypi import pip_settings

_MIRROR = "https://mirror.example/simple"
_PRIVATE = "https://user:word@private.example/simple"


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    """A user without settings, on a machine without settings but for its own certificates."""
    return {"HOME": str(home), "SSL_CERT_FILE": "/its/own.pem"}


Settings = Callable[[dict[str, str]], dict[str, str]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return lambda environ: pip_settings.uv_settings(environ, etc=tmp_path / "etc")


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_set_sets_nothing(settings: Settings, environ: dict[str, str]) -> None:
    assert settings(environ) == {}


def test_what_pip_is_told_by_its_environment_is_told_to_uv(
    settings: Settings, environ: dict[str, str], home: Path
) -> None:
    del environ["SSL_CERT_FILE"]
    told = {
        "PIP_INDEX_URL": _MIRROR,
        "PIP_EXTRA_INDEX_URL": f"{_PRIVATE}\n  https://more.example/simple",
        "PIP_FIND_LINKS": "/wheels ~/more https://wheels.example/list.html",
        "PIP_CERT": "/corporate.pem",
    }
    assert settings(environ | told) == {
        "UV_DEFAULT_INDEX": _MIRROR,
        "UV_INDEX": f"{_PRIVATE} https://more.example/simple",
        "UV_FIND_LINKS": f"/wheels,{home}/more,https://wheels.example/list.html",
        "SSL_CERT_FILE": "/corporate.pem",
    }


def test_the_users_file_counts_over_the_machines_and_the_named_one_over_both(
    settings: Settings, environ: dict[str, str], home: Path, tmp_path: Path
) -> None:
    def index_of(name: str) -> str:
        return f"https://{name}.example/simple"

    _write(
        tmp_path / "etc" / "pip.conf",
        f"[global]\nindex-url = {index_of('machine')}\nfind_links = /wheels\n",
    )
    assert settings(environ) == {"UV_DEFAULT_INDEX": index_of("machine"), "UV_FIND_LINKS": "/wheels"}
    _write(home / ".config" / "pip" / "pip.conf", f"[global]\nindex-url = {index_of('user')}\n")
    assert settings(environ) == {"UV_DEFAULT_INDEX": index_of("user"), "UV_FIND_LINKS": "/wheels"}
    named = _write(tmp_path / "named.conf", f"[global]\nindex-url={_MIRROR}\n[install]\nfind-links=/mine\n")
    environ["PIP_CONFIG_FILE"] = str(named)
    assert settings(environ) == {"UV_DEFAULT_INDEX": _MIRROR, "UV_FIND_LINKS": "/mine"}
    environ["PIP_INDEX_URL"] = index_of("variable")
    assert settings(environ) == {"UV_DEFAULT_INDEX": index_of("variable"), "UV_FIND_LINKS": "/mine"}
    environ["PIP_CONFIG_FILE"] = os.devnull
    assert settings(environ) == {"UV_DEFAULT_INDEX": index_of("variable")}


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"])
def test_an_index_that_uv_was_told_leaves_those_of_pip_aside(
    settings: Settings, environ: dict[str, str], name: str
) -> None:
    told = {name: "https://uv.example/simple", "PIP_INDEX_URL": _MIRROR, "PIP_EXTRA_INDEX_URL": _PRIVATE}
    assert settings(environ | told | {"PIP_FIND_LINKS": "/wheels"}) == {"UV_FIND_LINKS": "/wheels"}


@pytest.mark.parametrize(
    "text",
    [
        'index-url = "https://uv.example/simple"\n',
        '[pip]\nextra-index-url = ["https://uv.example/simple"]\n',
        '[[index]]\nurl = "https://uv.example/simple"\n',
    ],
)
def test_an_index_in_uvs_own_file_leaves_those_of_pip_aside(
    settings: Settings, environ: dict[str, str], home: Path, tmp_path: Path, text: str
) -> None:
    environ["PIP_INDEX_URL"] = _MIRROR
    users = _write(home / ".config" / "uv" / "uv.toml", text)
    assert settings(environ) == {}
    users.rename(tmp_path / "named.toml")
    assert settings(environ) == {"UV_DEFAULT_INDEX": _MIRROR}
    assert settings(environ | {"UV_CONFIG_FILE": str(tmp_path / "named.toml")}) == {}


def test_find_links_and_certificates_that_uv_was_told_count(
    settings: Settings, environ: dict[str, str]
) -> None:
    told = {"UV_FIND_LINKS": "/uv", "PIP_FIND_LINKS": "/pip", "PIP_CERT": "/pip.pem"}
    assert settings(environ | told) == {}


def test_without_a_word_about_certificates_the_systems_own_count_as_they_do_for_pip(
    settings: Settings,
    environ: dict[str, str],
) -> None:
    del environ["SSL_CERT_FILE"]
    assert set(settings(environ)) == {"UV_SYSTEM_CERTS"}
    environ["SSL_CERT_DIR"] = "/certificates"
    assert settings(environ) == {}


def test_places_relative_to_a_folder_are_left_out(settings: Settings, environ: dict[str, str]) -> None:
    assert settings(environ | {"PIP_FIND_LINKS": "wheels ./more ../most"}) == {}


def test_files_of_the_working_folder_or_a_virtual_environment_are_not_read(
    settings: Settings, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "pip.conf", f"[global]\nindex-url = {_MIRROR}\n")
    _write(tmp_path / "uv.toml", f'index-url = "{_MIRROR}"\n')
    monkeypatch.chdir(tmp_path)
    assert settings(environ | {"VIRTUAL_ENV": str(tmp_path)}) == {}


@pytest.mark.parametrize(
    ("place", "text"), [("pip/pip.conf", "index-url = x\n"), ("uv/uv.toml", "index = = x\n")]
)
def test_a_file_that_cannot_be_understood_is_named(
    settings: Settings, environ: dict[str, str], home: Path, place: str, text: str
) -> None:
    path = _write(home / ".config" / place, text)
    with pytest.raises(Invalid, match="cannot be understood") as caught:
        settings(environ)
    assert path.name in caught.value.message
