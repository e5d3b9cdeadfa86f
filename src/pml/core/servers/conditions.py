"""Conditions of a rule on the server of a call: whether it runs elsewhere, and what its tool says of itself.

What a tool says of itself counts only where the user believes the server. What is not known matches no allow,
and every deny and ask.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pml.core.rules.matchers import Reach, RuleInvalid
from pml.core.text import quote
from pml.core.values import Json, JsonObject, kind_of

# what a tool that does not say so is taken for, by the protocol
_DEFAULTS: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTraits:
    """What rules may know of a server: where it runs, and whether what it says of its tools is believed."""

    is_remote: bool = False
    is_believed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCondition:
    """What a rule asks of the server; None and no hints ask nothing."""

    is_remote: bool | None = None
    hints: tuple[tuple[str, bool], ...] = ()

    def matches(self, traits: ServerTraits | None, annotations: Json, *, reach: Reach) -> bool:
        """Tell whether it holds; `annotations` None: what the tool says is not known."""
        in_doubt = reach is Reach.WIDE
        if self.is_remote is not None:
            holds = in_doubt if traits is None else traits.is_remote is self.is_remote
            if not holds:
                return False
        if not self.hints:
            return True
        if traits is None or not traits.is_believed or not isinstance(annotations, Mapping):
            return in_doubt
        return all(_holds(annotations, name, value, in_doubt=in_doubt) for name, value in self.hints)


def _holds(annotations: JsonObject, name: str, value: bool, *, in_doubt: bool) -> bool:
    said = annotations.get(name, _DEFAULTS[name])
    return said is value if isinstance(said, bool) else in_doubt


def parse_condition(entry: JsonObject) -> ServerCondition | None:
    """Return what the entry of a rule asks of the server, None for nothing. Raises: RuleInvalid."""
    if "server" not in entry and "annotations" not in entry:
        return None
    return ServerCondition(is_remote=_is_remote(entry), hints=_hints(entry))


def _is_remote(entry: JsonObject) -> bool | None:
    if "server" not in entry:
        return None
    server = entry["server"]
    remote = server.get("remote") if isinstance(server, Mapping) and len(server) == 1 else None
    if not isinstance(remote, bool):
        raise RuleInvalid(("server",), '`server` must be `{"remote": true}` or `{"remote": false}`')
    return remote


def _hints(entry: JsonObject) -> tuple[tuple[str, bool], ...]:
    annotations = entry.get("annotations", {})
    if not isinstance(annotations, Mapping):
        raise RuleInvalid(("annotations",), f"`annotations` must be an object, not {kind_of(annotations)}")
    if "annotations" in entry and not annotations:
        raise RuleInvalid(("annotations",), "`annotations` must name at least one")
    found: list[tuple[str, bool]] = []
    for name, value in annotations.items():
        if name not in _DEFAULTS:
            known = ", ".join(f"`{each}`" for each in _DEFAULTS)
            raise RuleInvalid(
                ("annotations", name), f"unknown annotation {quote(name)}", hint=f"known are {known}"
            )
        if not isinstance(value, bool):
            raise RuleInvalid(("annotations", name), f"`{name}` must be true or false, not {kind_of(value)}")
        found.append((name, value))
    return tuple(found)
