"""Rules: which tools may run, judged from name and arguments alone, in the order deny, allow, ask.

A deny beats everything. A call that no rule names, or only the default ask `"*"`, is unlisted. Rules are
found through an index and verdicts are remembered by tool name, so thousands of rules cost no more than ten.
It knows nothing of files, grants and approvals, nor of what a verdict leads to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final

import msgspec

from pml.core.rules.arguments import holds_code, is_running, without_searches_and_paths
from pml.core.rules.globs import Glob, GlobIndex, bare_action, covers
from pml.core.rules.links import Disk
from pml.core.rules.matchers import (
    AnyArgument,
    Matcher,
    Pointer,
    Reach,
    RuleInvalid,
    did_you_mean,
    parse_matcher,
)
from pml.core.rules.places import CallContext, Starts
from pml.core.servers.conditions import ServerCondition, ServerTraits, parse_condition
from pml.core.text import has_hidden, quote, visible_json
from pml.core.values import Json, JsonObject, canonical, kind_of

DEFAULT_ASK: Final = "*"  # stands in every file PML creates, and so cannot mean "ask on every call"
ENTRY_KEYS: Final = (
    "tool",
    "args",
    "exact",
    "server",
    "annotations",
    "id",
    "enabled",
    "expires",
    "created_at",
    "ttl_s",
    "match",
    "not_match",
)
MEMO_NAMES: Final = 4096
MEMO_NAME_CHARS: Final = 256  # agents choose names: longer ones are judged, but not remembered

_Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Effect(StrEnum):
    DENY = "deny"
    ALLOW = "allow"
    ASK = "ask"


ORDER: Final = (Effect.DENY, Effect.ALLOW, Effect.ASK)


class VerdictKind(StrEnum):
    DENY = "deny"
    ALLOW = "allow"
    ASK = "ask"
    UNLISTED = "unlisted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a rule is written."""

    file: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One entry of a list of permissions; `entry` is how it was written. `exact`: no arguments but those."""

    effect: Effect
    tool: str
    args: tuple[Matcher | AnyArgument, ...] = ()
    exact: bool = False
    server: ServerCondition | None = None
    id: str | None = None
    expires_at: datetime | None = None
    entry: Json
    source: Source | None = None

    @property
    def is_default(self) -> bool:
        return self.effect is Effect.ASK and self.entry == DEFAULT_ASK


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a tool; relative paths will be read against `cwd`, None if that is unknown.

    `starts` is where they may begin as well, if the tool's server is not one that the rules come with.
    `server` is what is known of one that the rules do not come with, `annotations` what the tool says.
    `definition` and `artefact` are digests of what would run; rules do not look at them, grants do.
    """

    tool: str
    arguments: JsonObject
    cwd: str | None = None
    starts: Starts | None = None
    server: ServerTraits | None = None
    annotations: Json = None
    definition: str | None = None
    artefact: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What the rules say: the deciding rule, and all that matched in the order deny, allow, ask.

    `unsure`: a path goes through a link, and what an exchanged link leads to is denied, or may be.
    """

    kind: VerdictKind
    rule: Rule | None
    matched: tuple[Rule, ...]
    unsure: bool = False

    @cached_property
    def why(self) -> str:
        """What decided, in words."""
        return "no rule names it" if self.rule is None else rule_text(self.rule)


class RuleSet:
    """Rules to judge calls by, each list in the order given.

    Of servers, by name, `starts` are where they work, and `traits` what conditions of rules may know.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        paths: Disk,
        starts: Mapping[str, Starts] | None = None,
        traits: Mapping[str, ServerTraits] | None = None,
    ) -> None:
        self._paths = paths
        self._starts = starts or {}
        self._traits = traits or {}
        self._rules = sorted(rules, key=lambda rule: ORDER.index(rule.effect))
        self._by_tool = GlobIndex()
        self._by_action = GlobIndex()
        self._memo: dict[str, Verdict | tuple[Rule, ...]] = {}
        for position, rule in enumerate(self._rules):
            (self._by_tool if ":" in rule.tool else self._by_action).add(rule.tool, position)
        self.reads_annotations = any(rule.server is not None and rule.server.hints for rule in self._rules)

    def judge(self, call: Call, *, now: datetime) -> Verdict:
        """Return the verdict on `call`."""
        known = self._memo.get(call.tool)
        if known is None:
            known = self._learn(call.tool)
        if isinstance(known, Verdict):
            return known
        context = self.context(call)
        matched: list[Rule] = []
        unsure = False
        for rule in known:  # the denies come first
            if rule.expires_at is not None and rule.expires_at <= now:
                continue
            if self._meets_server(rule, call) and meets_arguments(rule, call, context):
                matched.append(rule)
            if rule.effect is Effect.DENY:
                unsure = bool(context.unsure)
        return decide(matched, unsure=unsure)

    def _meets_server(self, rule: Rule, call: Call) -> bool:
        if rule.server is None:
            return True
        traits = call.server or self._traits.get(call.tool.partition(":")[0])
        return rule.server.matches(traits, call.annotations, reach=reach_of(rule.effect))

    def context(self, call: Call) -> CallContext:
        """Return what is around the call: where its paths could begin."""
        starts = call.starts or self._starts.get(call.tool.partition(":")[0])
        return CallContext(call.cwd, self._paths, starts or Starts(), call.arguments)

    def hidden_asks(self) -> list[tuple[Rule, Rule]]:
        """Return each ask that can never be reached, with the allow that hides it; only sure cases."""
        found: list[tuple[Rule, Rule]] = []
        for ask in self._rules:
            if ask.effect is not Effect.ASK or ask.is_default:
                continue
            # a glob that matches the spelling of another is the only kind that can cover it
            for rule in self.naming(ask.tool):
                if rule.effect is Effect.ALLOW and _is_constant(rule) and covers(rule.tool, ask.tool):
                    found.append((ask, rule))
                    break
        return found

    def naming(self, tool: str) -> list[Rule]:
        """Return the rules whose globs match `tool`, whatever their arguments and expiry, in their order."""
        positions = self._by_tool.find(tool) + self._by_action.find(bare_action(tool))
        return [self._rules[position] for position in sorted(positions)]

    def _learn(self, tool: str) -> Verdict | tuple[Rule, ...]:
        rules = self.naming(tool)
        known = decide(rules) if all(map(_is_constant, rules)) else tuple(rules)
        if len(tool) <= MEMO_NAME_CHARS:
            if len(self._memo) >= MEMO_NAMES:
                self._memo.clear()
            self._memo[tool] = known
        return known


def parse_entry(
    effect: Effect, value: Json, *, source: Source | None, base_dir: str, paths: Disk
) -> Rule | None:
    """Return the rule that an entry means, or None when it is switched off; `base_dir` is its file's folder.

    Raises: RuleInvalid, also when one of the entry's examples does not hold.
    """
    if isinstance(value, str):
        return Rule(effect=effect, tool=_glob(value, ()), entry=value, source=source)
    if not isinstance(value, Mapping):
        raise RuleInvalid((), f"a rule is a text or an object, not {kind_of(value)}")
    _refuse_unknown_keys(value, ENTRY_KEYS, ())
    args = value.get("args", {})
    if not isinstance(args, Mapping):
        raise RuleInvalid(("args",), f"`args` must be an object, not {kind_of(args)}")
    rule = Rule(
        effect=effect,
        tool=_glob(value.get("tool"), ("tool",) if "tool" in value else ()),
        args=tuple(_matcher(name, args[name], reach_of(effect), base_dir, paths) for name in args),
        exact=_exact(value, effect),
        server=parse_condition(value),
        id=_id(value),
        expires_at=_expiry(value),
        entry=value,
        source=source,
    )
    if rule.exact and any(len(matcher.segments) > 1 for matcher in rule.args):
        raise RuleInvalid(
            ("exact",), "`exact` needs whole arguments: a pointer into one leaves its rest open"
        )
    _check_examples(rule, value, base_dir, paths)
    enabled = value.get("enabled", True)
    if not isinstance(enabled, bool):
        raise RuleInvalid(("enabled",), f"`enabled` must be true or false, not {kind_of(enabled)}")
    return rule if enabled else None


def decide(matched: Sequence[Rule], *, unsure: bool = False) -> Verdict:
    """Return the verdict when exactly these rules matched, in the order deny, allow, ask.

    `unsure`: it is not known whether a deny is about the call as well; then no allow applies.
    """
    unsure = unsure and not (matched and matched[0].effect is Effect.DENY)
    if unsure:
        matched = [rule for rule in matched if rule.effect is not Effect.ALLOW]
    rule = next((rule for rule in matched if not rule.is_default), matched[0] if matched else None)
    kind = VerdictKind.UNLISTED if rule is None or rule.is_default else VerdictKind(rule.effect)
    return Verdict(kind=kind, rule=rule, matched=tuple(matched), unsure=unsure)


def rule_text(rule: Rule) -> str:
    """Return the rule as its file has it, and where."""
    where = "" if rule.source is None else f" ({rule.source.file}:{rule.source.line})"
    return f"{rule.effect} {canonical(rule.entry).decode()}{where}"


def names_tool(rule: Rule, tool: str) -> bool:
    """Say whether the rule's glob matches `tool`: the whole name if it has a colon, else the bare action."""
    return Glob(rule.tool).matches(tool if ":" in rule.tool else bare_action(tool))


def meets_arguments(rule: Rule, call: Call, context: CallContext) -> bool:
    """Say whether the call's arguments are what the rule's `args` ask for."""
    reach = reach_of(rule.effect)
    given = without_words(call.tool, call.arguments).keys()
    if rule.exact and not given <= {matcher.segments[0] for matcher in rule.args}:
        return False
    return all(matcher.matches(call.arguments, reach=reach, context=context) for matcher in rule.args)


def reach_of(effect: Effect) -> Reach:
    """Return how a rule of this effect treats what is in doubt."""
    return Reach.NARROW if effect is Effect.ALLOW else Reach.WIDE


def runs_code(tool: str, arguments: JsonObject) -> bool:
    """Say whether the call runs commands or code, so that only its exact arguments may be remembered.

    What is in doubt does. A call that does not is called plain.
    """
    action = bare_action(tool)
    return is_running(action, arguments) or holds_code(without_searches_and_paths(action, arguments))


def without_words(tool: str, arguments: JsonObject) -> JsonObject:
    """Return the arguments that change what runs.

    A client's own tool that takes a command also says, each time anew, what that does.
    """
    if ":" in tool or not isinstance(arguments.get("command"), str):
        return arguments
    return {name: value for name, value in arguments.items() if name != "description"}


def _is_constant(rule: Rule) -> bool:
    return not rule.args and not rule.exact and rule.server is None and rule.expires_at is None


def _glob(value: Json, pointer: Pointer) -> str:
    if not isinstance(value, str) or not value:
        raise RuleInvalid(pointer, "a rule needs the name of a tool, or a glob for several")
    if " " in value or has_hidden(value):
        raise RuleInvalid(
            pointer,
            f"{quote(value)} can never match: no tool's name has blanks or hidden characters",
            hint="take them out; a name looks like `github:create_issue`",
        )
    return value


def _matcher(argument: str, value: Json, reach: Reach, base_dir: str, paths: Disk) -> Matcher | AnyArgument:
    try:
        return parse_matcher(argument, value, reach=reach, base_dir=base_dir, home=paths.home)
    except RuleInvalid as exc:
        raise RuleInvalid(("args", argument, *exc.pointer), exc.problem, hint=exc.hint) from exc


def _id(entry: JsonObject) -> str | None:
    value = entry.get("id")
    if value is None or (isinstance(value, str) and value):
        return value
    raise RuleInvalid(("id",), "`id` must be a text that is not empty")


def _exact(entry: JsonObject, effect: Effect) -> bool:
    value = entry.get("exact", False)
    if not isinstance(value, bool):
        raise RuleInvalid(("exact",), f"`exact` must be true or false, not {kind_of(value)}")
    if value and effect is not Effect.ALLOW:
        raise RuleInvalid(("exact",), f"`exact` would let an added argument slip past this {effect} rule")
    return value


def _expiry(entry: JsonObject) -> datetime | None:
    """Return when the rule ends, the earlier of `expires` and `created_at` + `ttl_s`."""
    expires_at, created_at = _instant(entry, "expires"), _instant(entry, "created_at")
    if "ttl_s" not in entry:
        return expires_at
    ttl_s = entry["ttl_s"]
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or ttl_s <= 0:
        raise RuleInvalid(("ttl_s",), "`ttl_s` must be a number of seconds above 0")
    if created_at is None:
        raise RuleInvalid(("ttl_s",), "`ttl_s` counts from `created_at`, which is missing")
    try:
        ttl_ends_at = created_at + timedelta(seconds=ttl_s)
    except (OverflowError, ValueError) as exc:
        raise RuleInvalid(("ttl_s",), f"`ttl_s` leads beyond the calendar: `{ttl_s}`") from exc
    return ttl_ends_at if expires_at is None else min(expires_at, ttl_ends_at)


def _instant(entry: JsonObject, key: str) -> datetime | None:
    if key not in entry:
        return None
    try:
        return msgspec.convert(entry[key], _Instant).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError) as exc:
        raise RuleInvalid(
            (key,), f"`{key}` must be a time with its zone, such as `2027-01-31T18:00:00Z`"
        ) from exc


def _check_examples(rule: Rule, entry: JsonObject, base_dir: str, paths: Disk) -> None:
    for key, wanted in (("match", True), ("not_match", False)):
        examples = entry.get(key, ())
        if isinstance(examples, str) or not isinstance(examples, Sequence):
            raise RuleInvalid((key,), f"`{key}` must be a list of examples, not {kind_of(examples)}")
        for position, example in enumerate(examples):
            call = _example(example, (key, position))
            context = CallContext(base_dir, paths, arguments=call.arguments)
            found = names_tool(rule, call.tool) and meets_arguments(rule, call, context)
            if found is not wanted:
                shown = visible_json(example, indent=None)
                problem = "does not match" if wanted else "matches"
                raise RuleInvalid((key, position), f"the rule {problem} its `{key}` example `{shown}`")


def _example(value: Json, pointer: Pointer) -> Call:
    if isinstance(value, str):
        return Call(tool=value, arguments={})
    if not isinstance(value, Mapping):
        raise RuleInvalid(pointer, f"an example is a text or an object, not {kind_of(value)}")
    _refuse_unknown_keys(value, ("tool", "args"), pointer)
    tool, arguments = value.get("tool"), value.get("args", {})
    if not isinstance(tool, str) or not isinstance(arguments, Mapping):
        raise RuleInvalid(pointer, "an example needs a `tool`, and its `args` must be an object")
    return Call(tool=tool, arguments=arguments)


def _refuse_unknown_keys(value: JsonObject, known: Sequence[str], pointer: Pointer) -> None:
    """Raise on a key that is not known: to pass over a part of a rule could loosen it."""
    for key in value:
        if key not in known:
            names = "known are " + ", ".join(f"`{name}`" for name in known)
            near = did_you_mean(key, known)
            hint = names if near is None else f"{near} {names}"
            raise RuleInvalid((*pointer, key), f"unknown key {quote(key)}", hint=hint)
