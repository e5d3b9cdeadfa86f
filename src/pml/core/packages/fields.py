"""One JSON object from outside, read field by field: a refusal says field, value and what was expected.

The counterpart of `located` for what has no lines a person could fix. Null is the same as nothing; a key
that is not known is passed over. Knows no key by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar

from pml.core.errors import Invalid
from pml.core.text import quote, visible_json
from pml.core.values import Json, JsonObject

_T = TypeVar("_T")
_EnumT = TypeVar("_EnumT", bound=StrEnum)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """The object at `at` (such as `mcp_deps[0]`, or nothing for all of it) of `what`."""

    what: str
    value: JsonObject
    at: str = ""

    def named(self, key: str) -> str:
        """Return how messages call the field `key`, or the object itself."""
        path = self._path(key)
        return f"{self.what}: {quote(path)}" if path else self.what

    def get(self, key: str) -> Json:
        return self.value.get(key)

    def text(self, key: str, *, most: int) -> str | None:
        """Return the text at `key`, of 1 to `most` characters, or None. Raises: Invalid."""
        value = self.get(key)
        return None if value is None else self._as_text(key, value, most)

    def texts(self, key: str, *, most: int, each: int, may_be_empty: bool = False) -> tuple[str, ...]:
        """Return the texts at `key`: at most `most`, of at most `each` characters. Raises: Invalid."""
        return tuple(
            self._as_text(f"{key}[{index}]", item, each, may_be_empty=may_be_empty)
            for index, item in enumerate(self.items(key, most=most))
        )

    def texts_by_name(self, key: str, *, most: int, each: int) -> dict[str, str]:
        """Return the object of texts at `key`. Raises: Invalid."""
        inner = self.section(key)
        if inner is None:
            return {}
        if len(inner.value) > most:
            self.refuse(key, f"an object of at most {most:,} members")
        return {
            name: inner._as_text(name, value, each, may_be_empty=True) for name, value in inner.value.items()
        }

    def choice(self, key: str, choices: type[_EnumT]) -> _EnumT | None:
        """Return the word at `key` as one of `choices`, or None. Raises: Invalid."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or value not in [choice.value for choice in choices]:
            self.refuse(key, " or ".join(f'`"{choice}"`' for choice in choices))
        return choices(value)

    def boolean(self, key: str) -> bool | None:
        """Return the boolean at `key`, or None. Raises: Invalid."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def count(self, key: str) -> int | None:
        """Return the whole number at `key`, 0 or more, or None. Raises: Invalid."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.refuse(key, "a whole number of 0 or more")
        return value

    def items(self, key: str, *, most: int) -> tuple[Json, ...]:
        """Return the items of the array at `key`, none where there is none. Raises: Invalid."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.refuse(key, "an array")
        if len(value) > most:
            raise Invalid(f"{self.named(key)} must be an array of at most {most:,}, not of {len(value):,}")
        return tuple(value)

    def section(self, key: str) -> "Fields | None":
        """Return the object at `key`, or None. Raises: Invalid."""
        value = self.get(key)
        return None if value is None else self._as_section(key, value)

    def sections(self, key: str, *, most: int) -> "tuple[Fields, ...]":
        """Return the objects of the array at `key`. Raises: Invalid."""
        return tuple(
            self._as_section(f"{key}[{index}]", item) for index, item in enumerate(self.items(key, most=most))
        )

    def checked(self, key: str, check: Callable[[], _T]) -> _T:
        """Return what `check` does; its refusal is told as one of the field `key`. Raises: Invalid."""
        try:
            return check()
        except Invalid as exc:
            raise Invalid(f"{self.named(key)}: {exc.message}", hint=exc.hint) from exc

    def missing(self, key: str, expected: str) -> NoReturn:
        """Refuse the object for having no `key`. Raises: Invalid."""
        raise Invalid(f"{self.named(key)} is missing: expected {expected}")

    def refuse(self, key: str, expected: str, *, value: Json = None) -> NoReturn:
        """Refuse `value`, or what stands at `key`. Raises: Invalid."""
        raise Invalid(
            f"{self.named(key)} must be {expected}, not {shown(self.get(key) if value is None else value)}"
        )

    def _as_text(self, key: str, value: Json, most: int, *, may_be_empty: bool = False) -> str:
        if not isinstance(value, str):
            self.refuse(key, "a string", value=value)
        if not value and not may_be_empty:
            raise Invalid(f"{self.named(key)} must not be empty")
        if len(value) > most:
            raise Invalid(f"{self.named(key)} has {len(value):,} characters, more than {most:,}")
        if "\0" in value:
            raise Invalid(f"{self.named(key)} must not have a NUL character")
        return value

    def _as_section(self, key: str, value: Json) -> "Fields":
        if not isinstance(value, Mapping):
            self.refuse(key, "an object", value=value)
        return Fields(what=self.what, value=value, at=self._path(key))

    def _path(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at and key else self.at or key


def shown(value: Json) -> str:
    """Return `value` for a message: a text as it is, all else as JSON, cut."""
    return quote(value if isinstance(value, str) else visible_json(value, indent=None))
