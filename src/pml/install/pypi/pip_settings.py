"""The user's pip settings as uv's: where packages come from and which certificates are trusted.

uv does not read pip's files. Where the user has told uv itself, uv's settings apply and pip's are ignored.
Files of a workspace or of a virtual environment are never read: they may be somebody else's.
"""

import configparser
import os
import ssl
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from pml.core.errors import Invalid, Unavailable
from pml.core.text import quote, visible

_SECTIONS: Final = ("global", "install")  # as `pip install` reads them: the later applies
_INDEX_VARIABLES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
_INDEX_KEYS: Final = frozenset({"index", "index-url", "extra-index-url", "no-index"})
_CERT_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
_CERT_KEYS: Final = frozenset({"system-certs", "native-tls"})


def uv_settings(environ: Mapping[str, str], *, etc: Path = Path("/etc")) -> dict[str, str]:
    """Return the variables for uv that say what the user's pip settings say and uv's own do not.

    `etc` has the settings of the machine.

    Raises: Invalid for a settings file that cannot be understood; Unavailable if it cannot be read.
    """
    pip, told = _pip_settings(environ, etc), _told_uv(environ, etc)
    settings: dict[str, str] = {}
    if not (told & _INDEX_KEYS or any(environ.get(name) for name in _INDEX_VARIABLES)):
        settings |= _some("UV_DEFAULT_INDEX", pip.get("index-url", "").strip())
        settings |= _some("UV_INDEX", " ".join(pip.get("extra-index-url", "").split()))
    if not ("find-links" in told or environ.get("UV_FIND_LINKS")):
        settings |= _some("UV_FIND_LINKS", ",".join(_places(pip.get("find-links", ""), environ)))
    if not (told & _CERT_KEYS or any(environ.get(name) for name in _CERT_VARIABLES)):
        named = _places(pip.get("cert", ""), environ)[:1]
        settings |= {"SSL_CERT_FILE": named[0]} if named else {"UV_SYSTEM_CERTS": str(_has_store()).lower()}
    return settings


def _some(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _has_store() -> bool:
    """Tell whether the system has certificates of its own: pip uses those, uv only where it is told to."""
    known = ssl.get_default_verify_paths()
    return sys.platform in ("win32", "darwin") or bool(known.cafile or known.capath)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("USERPROFILE" if sys.platform == "win32" else "HOME") or Path.home())


def _places(text: str, environ: Mapping[str, str]) -> list[str]:
    """Return the URLs and absolute paths in `text`; a relative path would lead into the workspace."""
    places = [f"{_home(environ)}{place[1:]}" if place.startswith("~/") else place for place in text.split()]
    return [place for place in places if "://" in place or os.path.isabs(place)]


def _pip_settings(environ: Mapping[str, str], etc: Path) -> dict[str, str]:
    settings: dict[str, str] = {}
    for path in _pip_files(environ, etc):
        settings |= _read_pip(path)
    named = {name.removeprefix("PIP_"): value for name, value in environ.items() if name.startswith("PIP_")}
    return settings | {_key(name): value for name, value in named.items() if value}


def _read_pip(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(_text(path))
    except configparser.Error as exc:
        reason = visible(str(exc).splitlines()[0])
        raise Invalid(f"the pip settings {quote(str(path))} cannot be understood: {reason}") from exc
    found = [parser[section] for section in _SECTIONS if parser.has_section(section)]
    return {_key(name): value for section in found for name, value in section.items()}


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _pip_files(environ: Mapping[str, str], etc: Path) -> Iterator[Path]:
    """Yield pip's files that exist: the machine's, the user's, the one that is named. The last applies."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # so pip is told to read none
        return
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    home = _home(environ)
    places = [*(folder / "pip" / name for folder in _machine_folders(environ, etc)), home / ".pip" / name]
    if sys.platform != "win32":
        places.insert(0, etc / name)
    if sys.platform == "darwin":
        places.append(home / "Library" / "Application Support" / "pip" / name)
    places.append(_user_folder(environ) / "pip" / name)
    places += [Path(named)] if named else []
    yield from (path for path in places if path.is_file())


def _told_uv(environ: Mapping[str, str], etc: Path) -> set[str]:
    """Return the keys that the user's files for uv set."""
    named = environ.get("UV_CONFIG_FILE")
    folders = [*_machine_folders(environ, etc), _user_folder(environ)]
    places = [Path(named)] if named else [folder / "uv" / "uv.toml" for folder in folders]
    if sys.platform != "win32" and not named:
        places.append(etc / "uv" / "uv.toml")
    told: set[str] = set()
    for path in places:
        if path.is_file():
            try:
                content: dict[str, Any] = tomllib.loads(_text(path))
            except tomllib.TOMLDecodeError as exc:
                reason = visible(str(exc))
                raise Invalid(f"the uv settings {quote(str(path))} cannot be understood: {reason}") from exc
            pip = content.get("pip")
            told |= {*content, *(cast(dict[str, Any], pip) if isinstance(pip, dict) else ())}
    return told


def _machine_folders(environ: Mapping[str, str], etc: Path) -> list[Path]:
    if sys.platform == "win32":
        return [Path(environ.get("PROGRAMDATA", r"C:\ProgramData"))]
    if sys.platform == "darwin":
        return [Path("/Library/Application Support")]
    named = environ.get("XDG_CONFIG_DIRS") or str(etc / "xdg")
    return [Path(folder) for folder in reversed(named.split(os.pathsep)) if os.path.isabs(folder)]


def _user_folder(environ: Mapping[str, str]) -> Path:
    if sys.platform == "win32" and (roaming := environ.get("APPDATA")):
        return Path(roaming)
    return Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        reason = (exc.strerror or "unknown").lower()
        raise Unavailable(f"{quote(str(path))} cannot be read: {reason}") from exc
