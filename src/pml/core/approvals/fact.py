"""A fact of a question: a name, a value, and whether it must not be overlooked.

Who tells a fact says whether it alarms. Nothing reads that from the words, which may be reworded any day.
"""

from collections.abc import Iterable

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A name and its value, which may have several lines; `alarming`: what must not be overlooked."""

    name: str
    value: str
    alarming: bool = False


def pairs(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    """Return the facts as plain text has them."""
    return [(fact.name, fact.value) for fact in facts]


def plain(told: Iterable[tuple[str, str]]) -> list[Fact]:
    """Return facts of which none alarms."""
    return [Fact(name=name, value=value) for name, value in told]
