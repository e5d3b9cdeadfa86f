"""Variables in the entry of a server: `${NAME}` and `${NAME:-default}`, as MCP clients expand them.

A value is not looked through again. Which environment it comes from, and what may be done with a server whose
entry says `${NAME}`, is not known here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE: Final = re.compile(rf"\$\{{({_NAME})(?::-([^}}]*))?\}}")
_FOREIGN: Final = re.compile(r"\$\{(env|input|command|config):([^}]*)\}")  # of editors


class Environment(dict[str, str]):
    """Values of variables, and the names of those that `pml secrets` has: filled in when a server starts."""

    def __init__(self, values: Mapping[str, str], *, stored: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.stored = frozenset(stored)


class Expander:
    """Expands the texts of one entry; `names` are the variables in them, `values` of those that were used.

    `unset` have no value; `later` have a stored one, and stay as they are until the server is started.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._stored = environ.stored if isinstance(environ, Environment) else frozenset[str]()
        self._is_now = False
        self.later: dict[str, None] = {}
        self.names: dict[str, None] = {}
        self.values: dict[str, str] = {}
        self.unset: dict[str, None] = {}

    def __call__(self, text: str) -> str:
        """Return `text` with values in place of variables; a variable without one stays as it is."""
        return _VARIABLE.sub(self._value, text)

    def now(self, text: str) -> str:
        """As a call; a stored value is none: what it decides must be known before the server is started."""
        self._is_now = True
        try:
            return self(text)
        finally:
            self._is_now = False

    def _value(self, found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        self.names[name] = None
        value = self._environ.get(name)
        if not value and name in self._stored and not self._is_now:
            self.later[name] = None
            return found[0]
        if default is not None and not value:
            return default
        if value is None:
            self.unset[name] = None
            return found[0]
        self.values[name] = value
        return value


def expansion_problem(text: str) -> str | None:
    """Return why a variable in `text` cannot be expanded, or None."""
    if foreign := _FOREIGN.search(text):
        kind, name = foreign.groups()
        instead = f": write `${{{name}}}`" if kind == "env" and re.fullmatch(_NAME, name) else ""
        return f"has `${{{kind}:…}}`, which only some editors fill in{instead}"
    own = next((found[1] for found in _VARIABLE.finditer(text) if found[1].upper().startswith("PML_")), None)
    return None if own is None else f"has `${{{own}}}`, which is PML's own and given to no server"
