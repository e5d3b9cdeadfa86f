"""Variables in the entry of a server: `${NAME}` and `${NAME:-default}`, as MCP clients expand them.

A value is not looked through again. Which environment it comes from, and what may be done with a server whose
entry says `${NAME}`, is not known here.
"""

import re
from collections.abc import Mapping
from typing import Final

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE: Final = re.compile(rf"\$\{{({_NAME})(?::-([^}}]*))?\}}")
_FOREIGN: Final = re.compile(r"\$\{(env|input|command|config):([^}]*)\}")  # of editors


class Expander:
    """Expands the texts of one entry; `names` are the variables in them, `values` of those that were used.

    `unset` have no value.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.names: dict[str, None] = {}
        self.values: dict[str, str] = {}
        self.unset: dict[str, None] = {}

    def __call__(self, text: str) -> str:
        """Return `text` with values in place of variables; a variable without one stays as it is."""
        return _VARIABLE.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        self.names[name] = None
        value = self._environ.get(name)
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
