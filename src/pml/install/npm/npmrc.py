"""The user's npm settings: which registry a package is from, and what its registry wants to be shown.

Deno reads `~/.npmrc` and the one of a project, but not what npm takes from its environment; so the
installer's project gets a copy with that added. A reference to a variable stays a reference in the copy.
"""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pml.core.errors import Unavailable
from pml.core.text import quote

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(\?)?\}")
_NAMED: Final = re.compile(
    r"npm_config_(registry|cafile|proxy|https[-_]proxy|noproxy|@.+|//.+)", re.IGNORECASE
)
_PROXIES: Final = {"proxy": "HTTP_PROXY", "https-proxy": "HTTPS_PROXY", "noproxy": "NO_PROXY"}


def read_npmrc(environ: Mapping[str, str]) -> str:
    """Return the user's settings as one `.npmrc`; what is in the environment is last, so it applies.

    Raises: Unavailable if there is a file that cannot be read.
    """
    lines = [f"{name}={value}" for name, value in _from_environment(environ).items()]
    return "\n".join([_user_file(environ), *lines, ""]).lstrip("\n")


def settings_of(npmrc: str) -> dict[str, str]:
    """Return the settings by name; a later one of the same name applies."""
    found: dict[str, str] = {}
    for line in npmrc.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith(("#", ";")):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def network_of(npmrc: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which Deno learns of a CA or proxy that only npm was told of."""
    settings = settings_of(npmrc)
    told: dict[str, str] = {}
    if "cafile" in settings and not environ.get("DENO_CERT"):
        told["DENO_CERT"] = expand(settings["cafile"], environ)
    for name, variable in _PROXIES.items():
        if name in settings and not (environ.get(variable) or environ.get(variable.lower())):
            told[variable] = expand(settings[name], environ)
    return told


def registry_for(name: str, npmrc: str, environ: Mapping[str, str]) -> str | None:
    """Return the registry that package `name` comes from; None: the settings name none."""
    settings = settings_of(npmrc)
    scope = name.partition("/")[0] if name.startswith("@") else ""
    registry = settings.get(f"{scope}:registry") if scope else None
    registry = registry or settings.get("registry")
    return expand(registry, environ) if registry else None


def authorization_for(url: str, npmrc: str, environ: Mapping[str, str]) -> str | None:
    """Return the header by which the registry that `url` belongs to knows the user, if it wants one."""
    parts = urlsplit(url)
    settings = settings_of(npmrc)
    path = f"//{parts.netloc}{parts.path}"
    places = sorted({name.rpartition(":")[0] for name in settings if name.startswith("//")}, key=len)
    for place in reversed(places):
        if path.startswith(place if place.endswith("/") else f"{place}/"):
            found = {
                name.rpartition(":")[2]: expand(value, environ)
                for name, value in settings.items()
                if name.rpartition(":")[0] == place
            }
            if header := _header(found):
                return header
    return None


def expand(value: str, environ: Mapping[str, str]) -> str:
    """Return `value` with each `${NAME}` replaced; one that is not set stays, and `${NAME?}` is empty."""
    return _REFERENCE.sub(lambda found: environ.get(found[1], "" if found[2] else found[0]), value)


def _header(found: Mapping[str, str]) -> str | None:
    if token := found.get("_authToken"):
        return f"Bearer {token}"
    if pair := found.get("_auth"):
        return f"Basic {pair}"
    if "username" in found and "_password" in found:
        try:
            password = base64.b64decode(found["_password"]).decode()
        except ValueError:
            return None
        return "Basic " + base64.b64encode(f"{found['username']}:{password}".encode()).decode()
    return None


def _user_file(environ: Mapping[str, str]) -> str:
    named = next((environ[name] for name in environ if name.lower() == "npm_config_userconfig"), None)
    home = environ.get("HOME") or environ.get("USERPROFILE")
    path = Path(named) if named else Path(home) / ".npmrc" if home else None
    if path is None:
        return ""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as exc:
        reason = (exc.strerror or "it cannot be read").lower()
        raise Unavailable(f"your npm settings {quote(str(path))}: {reason}") from exc


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in environ.items():
        if (match := _NAMED.fullmatch(name)) and value and "\n" not in value:
            setting = match[1]
            found[setting if setting.startswith(("@", "//")) else setting.lower().replace("_", "-")] = value
    return found
