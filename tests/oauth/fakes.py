"""A keyring in memory, which may be broken."""

from collections.abc import Sequence

from pml.core.errors import Unavailable


class MemoryKeyring:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.broken = False

    def get(self, names: Sequence[str]) -> dict[str, str]:
        self._ask()
        return {name: self.entries[name] for name in names if name in self.entries}

    def set(self, name: str, value: str) -> None:
        self._ask()
        self.entries[name] = value

    def delete(self, name: str) -> None:
        self._ask()
        self.entries.pop(name, None)

    def _ask(self) -> None:
        if self.broken:
            raise Unavailable("the keyring is locked")
