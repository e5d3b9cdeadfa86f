"""Reasons why PML asks: a rule, the default, or what is not known; kept with the question, as it stood then.

The tag of each is a word of the wire (`rule.verdict`) and of stored rows. It knows no approval: words are
made of the reason and the tool's name alone.
"""

from typing import Final, TypeAlias

import msgspec

from pml.core.digest import canonical
from pml.core.errors import Invalid
from pml.core.text import entry_text, visible
from pml.core.values import loads


class _Kept(msgspec.Struct, frozen=True, kw_only=True, tag_field="verdict"):
    foreign: bool = False  # the client spelt out another publisher than the short name means


class _OfRule(_Kept, frozen=True, kw_only=True):
    entry: str  # as canonical JSON
    file: str | None = None
    line: int | None = None


class AskRule(_OfRule, frozen=True, kw_only=True, tag="ask"):
    """A rule that asks names the call."""


class AllowRule(_OfRule, frozen=True, kw_only=True, tag="allow"):
    """A rule allows the call, but not what it needs first."""


class DenyRule(_OfRule, frozen=True, kw_only=True, tag="deny"):
    """A rule denies the call."""


class DefaultRule(_OfRule, frozen=True, kw_only=True, tag="unlisted"):
    """Only the catch-all names the call."""


class BrokenFile(_Kept, frozen=True, kw_only=True, tag="broken", rename={"problem": "entry"}):
    """A settings file cannot be read, so its denies are unknown."""

    problem: str
    file: str | None = None
    line: int | None = None


class _InWords(_Kept, frozen=True, kw_only=True, rename={"why": "entry"}):
    why: str


class Reserved(_InWords, frozen=True, kw_only=True, tag="reserved"):
    """The call leads to settings files or names PML: it asks every time."""


class AgentLaunch(_InWords, frozen=True, kw_only=True, tag="launch"):
    """The call starts an agent."""


class UnsureLink(_InWords, frozen=True, kw_only=True, tag="link"):
    """What a path leads to cannot be told, so neither what the rules say of it."""


class OutcomeUnknown(_InWords, frozen=True, kw_only=True, tag="unknown"):
    """The call was begun before, and may have run."""


class ForeignPublisher(_InWords, frozen=True, kw_only=True, tag="foreign"):
    """No rule can mean the tool: its short name is that of another publisher's."""


class CapabilityNeeds(_Kept, frozen=True, kw_only=True, tag="needs"):
    """A capability, and the tools that its code calls, of which some are not allowed."""

    capability: str = ""
    description: str | None = None
    source: str = ""
    calls: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None


RuleReason: TypeAlias = AskRule | AllowRule | DenyRule | DefaultRule
WordedReason: TypeAlias = Reserved | AgentLaunch | UnsureLink | OutcomeUnknown | ForeignPublisher
Reason: TypeAlias = (
    AskRule
    | AllowRule
    | DenyRule
    | DefaultRule
    | BrokenFile
    | Reserved
    | AgentLaunch
    | UnsureLink
    | OutcomeUnknown
    | ForeignPublisher
    | CapabilityNeeds
)
_OF_NEEDS: Final = ("capability", "description", "source", "calls", "covers", "named")


class MatchedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A reason as JSON and cards have it."""

    verdict: str
    entry: str
    file: str | None = None
    line: int | None = None
    foreign: bool = False


def matched(reason: Reason) -> MatchedRule:
    """Return the reason as JSON and cards have it."""
    has_place = not isinstance(reason, WordedReason)
    return MatchedRule(
        verdict=str(type(reason).__struct_config__.tag),
        entry=entry_of(reason),
        file=reason.file if has_place else None,
        line=reason.line if has_place else None,
        foreign=reason.foreign,
    )


def entry_of(reason: Reason) -> str:
    """Return what made PML ask as one text: the rule's entry, the problem, or the facts as JSON."""
    match reason:
        case CapabilityNeeds():
            return canonical({name: getattr(reason, name) for name in _OF_NEEDS}).decode()
        case BrokenFile():
            return reason.problem
        case AskRule() | AllowRule() | DenyRule() | DefaultRule():
            return reason.entry
        case _:
            return reason.why


def why_by(reason: Reason | None, tool: str) -> str:
    """Return in words what makes a call of `tool` ask."""
    match reason:
        case None:
            return f"no rule covers {visible(tool)}"
        case CapabilityNeeds():
            return "no rule allows this capability and all that its code calls"
        case BrokenFile():
            where = f"{visible(reason.file or '')}:{reason.line}"
            return (
                f"{where} is broken: {visible(reason.problem)}\n"
                "until it is fixed its denies are unknown: look closely"
            )
        case DefaultRule():
            return f'only your catch-all "ask {_entry_text(reason.entry)}" matches {visible(tool)}'
        case AskRule() | AllowRule() | DenyRule():
            return f"your rule {rule_words(reason)} says so{place_words(reason)}"
        case _:
            return visible(reason.why)


def rule_words(reason: Reason) -> str:
    """Return the rule as a person wrote it."""
    return f'"{type(reason).__struct_config__.tag} {_entry_text(entry_of(reason))}"'


def place_words(reason: Reason) -> str:
    """Return where the rule stands; the workspace's file by its name alone."""
    rule = matched(reason)
    file = visible(rule.file or "")
    name = ".pml.json" if file.endswith("/.pml.json") else file
    return f" ({name}, line {rule.line})" if file else ""


def needs_facts(needs: CapabilityNeeds) -> list[tuple[str, str]]:
    """Return what a capability that is called is and needs."""
    facts = [("full name", f"{visible(needs.capability)}, from {visible(needs.source)}")]
    if needs.description:
        facts.append(("does", visible(needs.description)))
    facts.append(("calls", "\n".join(visible(line) for line in needs.calls) or "no tools"))
    if needs.covers:
        names = ", ".join(visible(name) for name in needs.covers)
        facts.append(("covers", f"allowing it allows {names} too, in this run only"))
    return facts


def _entry_text(entry: str) -> str:
    try:
        return entry_text(loads(entry))
    except Invalid:
        return visible(entry)
