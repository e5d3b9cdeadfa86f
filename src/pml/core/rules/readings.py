"""Readings: every way a tool could take a text that stands for a path or a URL.

An empty result means that there is no telling, and the caller must treat the text as in doubt. Only the text
is looked at: links are followed elsewhere.
"""

import ipaddress
import re
import unicodedata
from itertools import product
from math import prod
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from pml.core.rules.globs import has_wildcard
from pml.core.text import has_hidden

MAX_PATH_CHARS: Final = 4096  # no system opens a longer one, and following links takes time by the segment
MAX_SPELLINGS: Final = 64  # enough for `[category]/[slug]`; every one is followed

_Place: TypeAlias = tuple[str, str]  # where a path starts, and the rest as the caller wrote it

# control characters, and what a shell or a library for globs, variables or templates puts something else for
_UNSURE_IN_PATH: Final = re.compile(r"[\x00-\x1f\x7f\\*?${`]|[@+!]\(")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")  # outside a URL some tools decode it, others do not
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*):")  # also a drive, `C:`
_CHOICE: Final = re.compile(r"\[([^\[\]!^-][^\[\]-]*)\]")  # in a glob, any one of these characters
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_VISIBLE_ASCII: Final = re.compile(r"[!-\[\]-~]+")  # no backslash: some parsers take it for a slash
_URL: Final = re.compile(r"(?:https?|wss?)://([^/?#]*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_NUMBER_LABEL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HOST_GLOB: Final = re.compile(r"[a-z0-9._*?-]+")
# the networks whose addresses can lead to an IPv4 host, and how many bits come after its number
_IPV4_WITHIN: Final = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (
        ("::/96", 0),  # IPv4-compatible
        ("::ffff:0:0/96", 0),  # IPv4-mapped
        ("::ffff:0:0:0/96", 0),  # IPv4-translated
        ("64:ff9b::/96", 0),  # NAT64
        ("64:ff9b:1::/48", 0),  # NAT64 with a prefix of the network's own
        ("2002::/16", 80),  # 6to4
    )
)


def path_readings(text: str, *, cwd: str | None, home: str) -> tuple[str, ...]:
    """Return the absolute paths that `text` can stand for, or () when there is no telling.

    A `..` after a link leads elsewhere for a tool that tidies the text first, so both spellings apply. A name
    such as `[id].tsx` is also a glob for `i.tsx` and `d.tsx`: all of them apply.
    """
    if not _is_plain_path(text):
        return ()
    scheme = _SCHEME.match(text)
    if scheme:  # some tools unwrap `view-source:file:///etc`, to others it is a name in `cwd`
        places = _file_url_paths(text[len("file:") :]) if scheme[1].lower() == "file" else ()
    elif _ESCAPE.search(text):
        places = ()
    elif text.startswith("/"):
        places = (("", text),)
    elif text == "~" or text.startswith("~/"):
        by_name = _joined(cwd, text)
        places = ((home, text[1:]), *by_name) if by_name else ()
    elif text.startswith("~"):  # another user's home
        places = ()
    else:
        places = _joined(cwd, text)
    spelled = [[start + spelling for spelling in _spellings(rest)] for start, rest in places]
    if not all(spelled):
        return ()
    every = [spelling for spellings in spelled for spelling in spellings]
    return tuple(dict.fromkeys([*every, *map(normal, every)]))


def normal(path: str) -> str:
    """Return the absolute `path` without empty, `.` and `..` segments, by its text alone."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    return "/" + "/".join(kept)


def fold(path: str) -> str:
    """Return one spelling for all that a file system blind to case and composition takes for the same."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


def is_under(path: str, directory: str) -> bool:
    """Say whether `path` is `directory` or lies in it; both absolute and normal."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def host_readings(text: str) -> tuple[str, ...]:
    """Return the hosts, spelled canonically, that the URL `text` leads to, or () when there is no telling."""
    url = _URL.match(text)
    if url is None or not _VISIBLE_ASCII.fullmatch(text):
        return ()
    authority = _AUTHORITY.fullmatch(url[1])
    if authority is None or int(authority[3] or 0) > 65535:
        return ()
    return _ipv6_readings(authority[1]) if authority[1] else _name_readings(authority[2].lower())


def host_glob(text: str) -> str | None:
    """Return the canonical spelling of a glob over hosts, or None when no host could be meant."""
    if ":" in text:
        readings = _ipv6_readings(text)
        return readings[0] if readings else None
    glob = text.lower().removesuffix(".")
    if not _HOST_GLOB.fullmatch(glob):
        return None
    return glob if has_wildcard(glob) or _name_readings(glob) else None


def _is_plain_path(text: str) -> bool:
    ends = text[:1] + text[-1:]  # tools trim blanks, and some also what cannot be seen
    return (
        len(text) <= MAX_PATH_CHARS
        and ends == ends.strip()
        and not has_hidden(ends)
        and not _UNSURE_IN_PATH.search(text)
    )


def _spellings(path: str) -> tuple[str, ...]:
    """Return `path` and all that its brackets stand for in a glob, or () when there is no telling."""
    pieces = _CHOICE.split(path)
    choices = pieces[1::2]
    if any("[" in fixed for fixed in pieces[::2]) or prod(map(len, choices)) > MAX_SPELLINGS:
        return ()
    options = [piece if position % 2 else [piece] for position, piece in enumerate(pieces)]
    return (path, *map("".join, product(*options)))


def _joined(cwd: str | None, path: str) -> tuple[_Place, ...]:
    return ((f"{cwd}/", path),) if cwd and cwd.startswith("/") else ()


def _file_url_paths(rest: str) -> tuple[_Place, ...]:
    """Return the paths meant by a file URL without its `file:`; some tools leave `%` escapes as they are."""
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        if authority.lower() not in ("", "localhost"):
            return ()
        rest = slash + path
    if not rest.startswith("/") or "#" in rest or _BAD_ESCAPE.search(rest):
        return ()
    try:
        decoded = unquote_to_bytes(rest).decode()
    except UnicodeError:
        return ()
    return (("", decoded), ("", rest)) if _is_plain_path(decoded) else ()


def _name_readings(name: str) -> tuple[str, ...]:
    name = name.removesuffix(".")
    labels = name.split(".")
    if "" in labels:
        return ()
    if not _NUMBER_LABEL.fullmatch(labels[-1]):
        return (name,)
    try:  # `127.1`, `0x7f.1` and `010.0.0.1` are addresses to some and names or other addresses to others
        return (str(ipaddress.IPv4Address(name)),)
    except ValueError:
        return ()


def _ipv6_readings(text: str) -> tuple[str, ...]:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return ()
    inner = [
        str(ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF))
        for network, shift in _IPV4_WITHIN
        if address in network and int(address) > 1  # `::` and `::1` are addresses of their own
    ]
    return (address.compressed, *inner)
