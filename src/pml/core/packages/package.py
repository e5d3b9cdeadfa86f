"""Packages of npm and PyPI, and MCP bundles: what is a name, and what is an exact version, in each of them.

Names and versions become file names and arguments of installers, so whatever is not plainly one is none.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec


class Ecosystem(StrEnum):
    NPM = "npm"
    PYPI = "pypi"
    MCPB = "mcpb"  # one `.mcpb` file, known by its hash


class Package(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an `install` line means: one package at one version, and the arguments for its server.

    `tool` is the program of the package that is the server, where it is not called like the package.
    `origin` is where an MCP bundle lies: a URL, or a file by its absolute path.
    """

    ecosystem: Ecosystem
    name: str
    version: str
    tool: str | None = None
    args: tuple[str, ...] = ()
    origin: str | None = None

    @property
    def spec(self) -> str:
        """`name@1.2.3` or `name==1.2.3`, as its ecosystem writes it."""
        return f"{self.name}{PIN[self.ecosystem]}{self.version}"


PIN: Final = {Ecosystem.NPM: "@", Ecosystem.PYPI: "==", Ecosystem.MCPB: "@"}

_MAX_NAME: Final = 214  # npm's bound; no PyPI name comes near it
_MAX_VERSION: Final = 128
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_NAMES: Final = {
    # capital letters and a first `_` are found among packages older than npm's rules
    Ecosystem.NPM: re.compile(r"(?:@[a-z0-9_][a-z0-9._-]*/)?[a-z0-9_][a-z0-9._-]*", re.IGNORECASE | re.ASCII),
    Ecosystem.PYPI: re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.IGNORECASE | re.ASCII),
    Ecosystem.MCPB: re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.IGNORECASE | re.ASCII),
}
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?"
)
_VERSIONS: Final = {
    Ecosystem.NPM: _SEMVER,
    Ecosystem.MCPB: _SEMVER,
    Ecosystem.PYPI: re.compile(
        rf"(?:[1-9][0-9]*!)?{_NUMBER}(?:\.{_NUMBER})*(?:(?:a|b|rc){_NUMBER})?(?:\.post{_NUMBER})?(?:\.dev{_NUMBER})?"
    ),
}
_RELEASE: Final = re.compile(r"(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*")
_NOT_PACKAGES: Final = frozenset({"node_modules", "favicon.ico"})


def is_name(text: str, ecosystem: Ecosystem) -> bool:
    """Tell whether `text` can be the name of a package."""
    return (
        len(text) <= _MAX_NAME
        and bool(_NAMES[ecosystem].fullmatch(text))
        and text.lower() not in _NOT_PACKAGES
    )


def is_version(text: str, ecosystem: Ecosystem) -> bool:
    """Tell whether `text` is one exact version, spelled as its ecosystem spells it."""
    return len(text) <= _MAX_VERSION and bool(_VERSIONS[ecosystem].fullmatch(text))


def normal_name(name: str, ecosystem: Ecosystem) -> str:
    """Return the one spelling of `name`: PyPI takes case and `-`, `_`, `.` for the same."""
    return re.sub(r"[-_.]+", "-", name).lower() if ecosystem is Ecosystem.PYPI else name


def same_version(one: str, other: str, ecosystem: Ecosystem) -> bool:
    """Tell whether two exact versions are one: to PyPI `1.0` is `1.0.0`."""
    if ecosystem is not Ecosystem.PYPI:
        return one == other
    return _without_zeros(one) == _without_zeros(other)


def _without_zeros(version: str) -> str:
    release = _RELEASE.match(version)
    if release is None:
        return version
    return re.sub(r"(?:\.0)+$", "", release[0]) + version[release.end() :]
