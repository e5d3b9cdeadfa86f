"""Secrets that stand in an entry as they are: found, and taken out of it.

In their place stands `${NAME}`. What looks like a secret is a guess on the safe side: a value too many in
`pml secrets` does no harm.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from urllib.parse import unquote_plus

from pml.core.values import Json, JsonObject

_SECRET_NAME: Final = re.compile(
    r"(?<!go)auth|token|secret|passw|pwd|credential|cookie|session|(?:^|[_-])pat(?:$|[_-])"
    r"|key(?!ring|board|word|space|[_-]?(?:id|path|file))|(?:database|db|redis|mongo\w*|postgres\w*)_ur[il]|dsn",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"(?:gh[pousr]_|github_pat_|glpat-|sk[-_]|rk_|pk_live|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-"
    r"|hf_|lin_api_|lin_oauth_|ntn_|secret_|shpat_|dop_v1_|figd_|tvly-|fc-|nvapi-|gsk_|r8_|SG\.|eyJ[\w-]+\.)"
    r"[\w.=/+-]{8,}"
)
_LOGIN: Final = re.compile(r"(?<=//)[^/?#\\@\s]*:(?P<value>[^/?#\\@\s]+)(?=@)")
_USER: Final = re.compile(r"(?<=//)(?P<value>[^/?#\\@:\s]+)(?=@)")
_PARAMETER: Final = re.compile(r"(?<=[?&#])(?P<name>[^=&#]+)=(?P<value>[^&#]*)")
_SEGMENT: Final = re.compile(r"(?<=/)(?P<value>[^/?#@:]+)(?=[/?#]|$)")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)
_HEADER_OPTIONS: Final = frozenset({"h", "header", "headers"})
_LONG: Final = re.compile(r"[A-Za-z0-9_\-+/=.]{24,}")
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_OPTION: Final = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.+))?", re.DOTALL)
_SCHEME: Final = re.compile(r"((?:Bearer|Basic|Token|token|Bot|ApiKey)\s+)?(.*)", re.DOTALL)
_NOT_SECRET: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1"})
_UNFIT: Final = re.compile(r"[^A-Z0-9_]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretValue:
    """A value that was found; `where` says for people where it stood, `name` what stands there now."""

    name: str
    where: str
    value: str = field(repr=False)
    is_argument: bool = False


class _Taking:
    """What was found in one entry; `held` tells which value a name has already, of others than this entry."""

    def __init__(self, server: str, held: Callable[[str], str | None]) -> None:
        self._server = variable_name(server)
        self._held = held
        self.values: dict[str, SecretValue] = {}

    def take(self, name: str, value: str, where: str, *, is_argument: bool = False) -> str:
        """Note the value and return what stands for it; a name that means another value is not used."""
        wanted = next(each for each in self._names(name) if self._meaning(each) in (None, value))
        self.values[wanted] = SecretValue(name=wanted, where=where, value=value, is_argument=is_argument)
        return f"${{{wanted}}}"

    def _names(self, name: str) -> Iterator[str]:
        yield name
        own = self.own_name(name)
        yield own
        for number in count(2):
            yield f"{own}_{number}"

    def _meaning(self, name: str) -> str | None:
        mine = self.values.get(name)
        return self._held(name) if mine is None else mine.value

    def own_name(self, text: str) -> str:
        """Return a name for a secret of this server that has none of its own."""
        name = variable_name(text)
        return name if name.startswith(self._server) else f"{self._server}_{name}"


def take_secrets(
    server: str, entry: JsonObject, *, held: Callable[[str], str | None] = lambda _: None
) -> tuple[JsonObject, tuple[SecretValue, ...]]:
    """Return the entry of `server` with variables in place of secrets, and the secrets.

    `held` tells which value a variable has already: a name with another value would give the server that one.
    """
    taking = _Taking(server, held)
    changed: dict[str, Json] = dict(entry)
    if isinstance(env := entry.get("env"), Mapping):
        changed["env"] = {name: _env(taking, name, value) for name, value in env.items()}
    if isinstance(headers := entry.get("headers"), Mapping):
        changed["headers"] = {name: _header(taking, name, value) for name, value in headers.items()}
    if isinstance(args := entry.get("args"), list | tuple):
        changed["args"] = _args(taking, args)
    if isinstance(url := entry.get("url"), str):
        changed["url"] = _url(taking, url)
    if isinstance(oauth := entry.get("oauth"), Mapping):
        changed["oauth"] = {
            key: taking.take(taking.own_name(key), each, f"oauth.{key}")
            if isinstance(each, str) and "secret" in key.lower() and _is_literal(each)
            else each
            for key, each in oauth.items()
        }
    return changed, tuple(taking.values.values())


def variable_name(text: str) -> str:
    """Return `text` as the name of a variable: `my-server` is `MY_SERVER`."""
    name = _UNFIT.sub("_", text.upper()).strip("_") or "SERVER"
    name = f"_{name}" if name[0].isdigit() else name
    return f"MY_{name}" if name.startswith("PML_") else name  # PML's own are given to no server


def _env(taking: _Taking, name: str, value: Json) -> Json:
    if not isinstance(value, str) or not _is_literal(value):
        return value
    if not (_SECRET_NAME.search(name) and _may_be_secret(value)) and not _is_secret(value):
        return value
    return taking.take(name, value, f"env.{name}")


def _header(taking: _Taking, name: str, value: Json) -> Json:
    if not isinstance(value, str) or not _is_literal(value):
        return value
    scheme, secret = _parts(value)
    if not secret or not (_SECRET_NAME.search(name) or scheme or _is_secret(secret)):
        return value
    own = taking.own_name("token" if name.lower() == "authorization" else name)
    return scheme + taking.take(own, secret, f"headers.{name}")


def _parts(value: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(value)
    return (found[1] or "", found[2]) if found else ("", value)


def _args(taking: _Taking, args: list[Json] | tuple[Json, ...]) -> list[Json]:
    changed: list[Json] = []
    before = ""
    for index, arg in enumerate(args):
        changed.append(_arg(taking, arg, before, index) if isinstance(arg, str) else arg)
        before = arg if isinstance(arg, str) else ""
    return changed


def _arg(taking: _Taking, arg: str, before: str, index: int) -> str:
    """Return the argument without its secret: the value of an option, a header, a URL, or all of it."""
    where = f"args[{index}]"
    if not _is_literal(arg):
        return arg
    option, previous = _OPTION.fullmatch(arg), _OPTION.fullmatch(before)
    if option and (value := option[2]) is not None:
        if _is_secret(value) or (_SECRET_NAME.search(option[1]) and _may_be_secret(value)):
            kept = taking.take(taking.own_name(option[1]), value, where, is_argument=True)
        else:
            kept = _within(taking, value, option[1], where)
        return arg[: -len(value)] + kept
    if option:
        return arg
    if previous is None or previous[2] is not None:
        return _within(taking, arg, "", where)
    if _SECRET_NAME.search(previous[1]) and _may_be_secret(arg):
        return taking.take(taking.own_name(previous[1]), arg, where, is_argument=True)
    return _within(taking, arg, previous[1], where)


def _within(taking: _Taking, text: str, option: str, where: str) -> str:
    """Return what `option` has, without its secret: a header, `NAME=value`, a URL, or all of it."""
    name, colon, value = text.partition(":")
    if option.lower() in _HEADER_OPTIONS and colon:
        scheme, secret = _parts(value.strip())
        if secret and (scheme or _SECRET_NAME.search(name) or _is_secret(secret)):
            kept = taking.take(taking.own_name(name), secret, where, is_argument=True)
            return f"{name}:{' ' if value.startswith(' ') else ''}{scheme}{kept}"
        return text
    if (found := _ASSIGNED.fullmatch(text)) is not None:
        name, value = found.groups()
        if _is_secret(value) or (_SECRET_NAME.search(name) and _may_be_secret(value)):
            return f"{name}={taking.take(taking.own_name(name), value, where, is_argument=True)}"
    if "://" in text:
        return _url(taking, text, where=where)
    return taking.take(taking.own_name("secret"), text, where, is_argument=True) if _is_secret(text) else text


def _url(taking: _Taking, url: str, *, where: str = "url") -> str:
    """Return the URL without its password, and without what looks secret in its path, query and fragment."""
    is_argument = where != "url"

    def taken(name: str, found: re.Match[str]) -> str:
        kept = taking.take(taking.own_name(name), found["value"], where, is_argument=is_argument)
        start, end = found.start("value") - found.start(), found.end("value") - found.start()
        return found[0][:start] + kept + found[0][end:]

    def login(found: re.Match[str]) -> str:
        return taken("password", found) if _is_literal(found["value"]) else found[0]

    def part(found: re.Match[str]) -> str:
        return taken("secret", found) if _is_secret(found["value"]) else found[0]

    def parameter(found: re.Match[str]) -> str:
        name, value = unquote_plus(found["name"]), unquote_plus(found["value"])
        is_named = _SECRET_NAME.search(name) and _may_be_secret(value)
        return taken(name, found) if _is_literal(value) and (is_named or _is_secret(value)) else found[0]

    start, scheme, rest = _USER.sub(part, _LOGIN.sub(login, url)).partition("://")
    place = re.match(r"[^?#]*", rest)
    path, more = (place[0], rest[place.end() :]) if place else (rest, "")
    return f"{start}{scheme}{_SEGMENT.sub(part, path)}{_PARAMETER.sub(parameter, more)}"


def _is_literal(value: str) -> bool:
    """Tell whether there is more in it than variables."""
    return not _VARIABLE.search(value)


def _may_be_secret(value: str) -> bool:
    """Tell whether what has the name of a secret can be one: not a switch, not a path."""
    return value.lower() not in _NOT_SECRET and not value.startswith(("/", "~", "./", "../"))


def _is_secret(value: str) -> bool:
    """Tell whether the value looks like a secret, whatever it is called."""
    if _SECRET_VALUE.fullmatch(value) or _LOGIN.search(value):
        return True
    if not _LONG.fullmatch(value) or "/" in value or value.count(".") > 2:
        return False
    kinds = (str.isupper, str.islower, str.isdigit)
    return all(any(kind(char) for char in value) for kind in kinds)
