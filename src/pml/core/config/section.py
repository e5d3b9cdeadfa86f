"""One object of a configuration file, read key by key, with the place of everything that is wrong.

A value of the wrong kind is refused at its line and column; an unknown key is kept in the file and
reported. Knows no key by name: `config` says which there are.
"""

from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import NoReturn, TypeVar

from pml.core.config.jsontext import Node
from pml.core.errors import ConfigInvalid
from pml.core.text import quote
from pml.core.values import kind_of

EnumT = TypeVar("EnumT", bound=StrEnum)


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Something in the file that does not apply, or not as it seems to."""

    line: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """An object within the file `path`; `name` is how people call it, such as `approval`."""

    path: str
    node: Node
    notices: list[Notice]  # one for the whole file
    name: str = ""
    asked: set[str] = field(default_factory=set[str])

    def get(self, key: str) -> Node | None:
        """Return the member `key`, which is a known one from now on, or None."""
        self.asked.add(key)
        return self.node.members.get(key)

    def named(self, key: str) -> str:
        """Return the name of the member `key`, from the top of the file."""
        return f"{self.name}.{key}" if self.name else key

    def section(self, key: str) -> "Section | None":
        """Return the object at `key`, or None. Raises: ConfigInvalid if it is something else."""
        node = self.get(key)
        return None if node is None else self.within(key, node)

    def empty(self, key: str) -> "Section":
        """Return a section that stands for the missing object `key`."""
        nothing = Node(value={}, line=self.node.line, column=self.node.column, start=0, end=0)
        return self.within(key, nothing)

    def within(self, key: str, node: Node) -> "Section":
        """Return `node`, the member `key`, as an object. Raises: ConfigInvalid if it is something else."""
        if not isinstance(node.value, dict):
            self.expect("an object", key, node)
        return Section(path=self.path, node=node, notices=self.notices, name=self.named(key))

    def boolean(self, key: str) -> bool | None:
        """Return the boolean at `key`, or None. Raises: ConfigInvalid."""
        node = self.get(key)
        if node is None:
            return None
        if not isinstance(node.value, bool):
            self.expect("true or false", key, node)
        return node.value

    def whole_number(self, key: str, *, low: int, high: int) -> int | None:
        """Return the integer at `key`, or None. Raises: ConfigInvalid if it is none or out of bounds."""
        node = self.get(key)
        if node is None:
            return None
        expected = f"a whole number from {low} to {high}"
        if isinstance(node.value, bool) or not isinstance(node.value, int):
            self.expect(expected, key, node)
        if not low <= node.value <= high:
            self.refuse(key, node, f"must be {expected}, not {node.value}")
        return node.value

    def choice(self, key: str, choices: type[EnumT]) -> EnumT | None:
        """Return the word at `key` as one of `choices`, or None. Raises: ConfigInvalid."""
        node = self.get(key)
        if node is None:
            return None
        expected = " or ".join(f'`"{choice}"`' for choice in choices)
        if not isinstance(node.value, str):
            self.expect(expected, key, node)
        if node.value not in [choice.value for choice in choices]:
            self.refuse(key, node, f"must be {expected}, not {quote(node.value)}")
        return choices(node.value)

    def text(self, key: str) -> str | None:
        """Return the text at `key`, or None. Raises: ConfigInvalid if it is none or empty."""
        node = self.get(key)
        return None if node is None else self.as_text(key, node)

    def as_text(self, key: str, node: Node, *, may_be_empty: bool = False) -> str:
        """Return the text of `node`, which stands at `key`. Raises: ConfigInvalid, without the text."""
        value = node.value
        if not isinstance(value, str):
            self.expect("a string", key, node)
        if not value and not may_be_empty:
            self.refuse(key, node, "must not be empty")
        if "\0" in value:
            self.refuse(key, node, "must not have a NUL character")
        return value

    def texts(self, key: str, *, may_be_empty: bool = False) -> tuple[str, ...] | None:
        """Return the texts at `key`, or None. Raises: ConfigInvalid."""
        node = self.get(key)
        if node is None:
            return None
        if not isinstance(node.value, list):
            self.expect("an array of strings", key, node)
        return tuple(
            self.as_text(f"{key}[{index}]", item, may_be_empty=may_be_empty)
            for index, item in enumerate(node.items)
        )

    def note(self, line: int, text: str) -> None:
        """Report something at `line` that does not make the file invalid."""
        self.notices.append(Notice(line=line, text=text))

    def note_unknown(self) -> None:
        """Report each unknown key, with the known one it resembles."""
        for key, node in self.node.keys.items():
            if key not in self.asked:
                near = get_close_matches(key, sorted(self.asked), n=1)
                hint = f"; did you mean {quote(self.named(near[0]))}?" if near else ""
                self.note(
                    node.line, f"{quote(self.named(key))} at line {node.line} is not a key PML knows{hint}"
                )

    def expect(self, expected: str, key: str, node: Node) -> NoReturn:
        """Refuse `node` for its kind. Raises: ConfigInvalid."""
        self.refuse(key, node, f"must be {expected}, not {kind_of(node.value)}")

    def refuse(self, key: str, node: Node, problem: str, *, hint: str | None = None) -> NoReturn:
        """Refuse `node`, which stands at `key`. Raises: ConfigInvalid."""
        name = quote(self.named(key)) if key else quote(self.name) if self.name else "the file"
        raise ConfigInvalid(self.path, node.line, node.column, f"{name} {problem}", hint=hint)
