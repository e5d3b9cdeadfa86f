"""Rules as people read and change them: which there are and whether they count, and what a change does.

What a rule means is `core.rules`' business, and writing it down `rulebook`'s.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pml.core.approvals.record import Approval, ApprovalId, Decider, instant
from pml.core.config.file import ConfigFile, FileKind
from pml.core.errors import Invalid
from pml.core.names import colon_of
from pml.core.own_tools import EXECUTE, LAUNCH_TOOL, META_TOOLS, SUPERVISING
from pml.core.ports.loader import Found
from pml.core.rules.ruleset import ORDER, Call, Effect, Rule, VerdictKind
from pml.core.rules.unknown_names import Doubt, doubts_about
from pml.core.text import entry_text, quote, visible_json
from pml.core.values import Json, JsonObject
from pml.core.wire import rule_json, verdict_json
from pml.service.approvals.lifecycle import release
from pml.service.context import Context
from pml.service.policy.model_rules import client_of
from pml.service.policy.policy import Judgement, Policy, current_policy, judge, kept_notice
from pml.service.rules.rulebook import add_rule, covered_by_rules, refuse_denied_everywhere


async def doubtful_rules(
    context: Context, policy: Policy, rules: Iterable[Rule], bundled: Sequence[Found]
) -> list[Doubt]:
    """Return what is odd about the rules, by what servers were seen to offer and the catalog says."""
    config = policy.loaded.workspace.config
    specs = {**policy.settings.servers, **({} if config is None else config.servers)}
    offers: dict[str, Sequence[JsonObject]] = {}
    for found in bundled:
        for dependency in found.metadata.mcp_deps:
            if dependency.name not in specs:
                offers[dependency.name] = found.metadata.tools
    for name, spec in specs.items():
        manifest = await context.store.manifests.get(name, spec.target_digest)
        if manifest is not None:
            offers[name] = manifest.tools
    return [doubt for rule in rules for doubt in doubts_about(rule, offers, specs)]


KEPT: Final = "kept from the content that was trusted last"
_PLAIN_ONLY: Final = "covers no commands or code"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What came of adding a rule."""

    effect: Effect
    entry: Json
    which: FileKind
    added: bool
    policy: Policy
    denied: Sequence[Approval]
    released: Sequence[Approval]
    covered: Sequence[Approval]
    not_covered: Sequence[ApprovalId]
    doubts: Sequence[Doubt] = ()

    @property
    def file(self) -> str:
        loaded = self.policy.loaded
        return loaded.user.path if self.which is FileKind.USER else loaded.workspace.path

    @property
    def counts(self) -> bool:
        """Whether the rule has force now: an allow of an untrusted file, or beside a broken one, has not."""
        if self.effect is not Effect.ALLOW:
            return True
        is_trusted = self.which is FileKind.USER or self.policy.trusted
        return not self.policy.broken and is_trusted and not self.is_misplaced_launch

    @property
    def is_misplaced_launch(self) -> bool:
        """Whether it would allow launches, which only the user's file does."""
        named = self.entry.get("tool") if isinstance(self.entry, Mapping) else self.entry
        is_allow = self.effect is Effect.ALLOW and self.which is FileKind.WORKSPACE
        return is_allow and named == LAUNCH_TOOL

    def json(self) -> dict[str, Json]:
        return {
            "effect": self.effect,
            "entry": self.entry,
            "file": self.file,
            "added": self.added,
            "counts": self.counts,
            "denied": [record.id for record in self.denied],
            "covers": [record.id for record in self.covered],
            "released": [record.id for record in self.released],
            "not_covered": [*self.not_covered],
            "doubts": [{"message": each.message, "hint": each.hint} for each in self.doubts],
        }


async def enter_rule(
    context: Context,
    workspace: str,
    effect: Effect,
    entry: Json,
    *,
    which: FileKind,
    shown: Sequence[ApprovalId],
    by: Decider,
    bundled: Sequence[Found] = (),
) -> Change:
    """Add a rule, deny what it denies, and let those of `shown` run that it allows. Raises: Invalid, …

    `bundled` is the catalog, by which names are checked as by what servers were seen to offer.
    """
    named = entry.get("tool") if isinstance(entry, Mapping) else entry
    refuse_wire_name(str(named), await current_policy(context, workspace))
    added = await add_rule(context, workspace, effect, entry, which=which, by=by)
    released = await release(context, shown, by=by)
    policy = await current_policy(context, workspace)
    written = [rule for rule in _all_rules(policy) if rule.effect is effect and rule.entry == entry]
    return Change(
        effect=effect,
        entry=entry,
        which=which,
        added=added,
        policy=policy,
        denied=await refuse_denied_everywhere(context) if effect is Effect.DENY else (),
        released=released,
        covered=await covered_by_rules(context) if effect is Effect.ALLOW else (),
        not_covered=[each for each in shown if each not in {record.id for record in released}],
        doubts=await doubtful_rules(context, policy, written[:1], bundled),
    )


def _all_rules(policy: Policy) -> Iterator[Rule]:
    """Yield the rules of both files, trusted or not."""
    for file in (policy.loaded.user, policy.loaded.workspace):
        yield from () if file.config is None else file.config.rules


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What the rules make of a call. `near` are rules that name the tool and yet do not match, with why."""

    judged: Judgement
    policy: Policy
    near: Sequence[tuple[Rule, str]]
    runs_unasked: str | None = None  # why it runs although no rule decides

    def json(self) -> dict[str, Json]:
        shape = verdict_json(self.judged.verdict) | {
            "near": [rule_json(rule) | {"note": note} for rule, note in self.near],
            "trusted": self.policy.trusted,
            "needs_trust": self.judged.needs_trust,
            "asking_is_off": self.judged.asking_is_off,
            "unlisted": self.policy.settings.approval.unlisted,
            "runs_unasked": self.runs_unasked,
            **_state_json(self.policy),
        }
        if self.judged.broken or self.judged.is_launch:  # what a rule says of the name does not count then
            shape["verdict"] = self.judged.kind
        return shape


async def explain(context: Context, workspace: str, call: Call) -> Explained:
    """Return what the rules alone say; what a session remembers does not show. Raises: Invalid."""
    policy = await current_policy(context, workspace)
    refuse_wire_name(call.tool, policy)
    judged = await judge(context, policy, call, session=None)
    return Explained(
        judged=judged,
        policy=policy,
        near=list(_near_misses(policy, call, judged, context.clock.now())),
        runs_unasked=_why_unasked(call.tool) if judged.kind is VerdictKind.UNLISTED else None,
    )


def _why_unasked(tool: str) -> str | None:
    """Return why one of PML's own tools runs though no rule names it; as `own_tools.admit_own` does."""
    if tool == EXECUTE:
        return "the code itself runs without asking, and each call that it makes is judged"
    if tool in META_TOOLS:
        return "it runs without asking, and the tool that it leads to is judged"
    return "it runs without asking, for sessions whose role has it" if tool in SUPERVISING else None


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A rule as it is listed. `note` says why it does not count, or why it does though its file lacks it."""

    rule: Rule
    note: str | None = None
    counts: bool = True
    is_kept: bool = False


def listed_rules(policy: Policy, now: datetime, models: Mapping[str, str]) -> Iterator[Listed]:
    """Yield every rule in the order it is tried, those that are kept last of their effect."""
    files = [file.config for file in (policy.loaded.user, policy.loaded.workspace) if file.config is not None]
    own = policy.loaded.workspace.path
    hidden = {id(ask): allow for ask, allow in policy.rules.hidden_asks()}
    kept = () if policy.kept is None else policy.kept.rules
    for effect in ORDER:
        for file in files:
            for rule in (rule for rule in file.rules if rule.effect is effect):
                note = _why_not(policy, file, rule, hidden, now)
                yield Listed(rule=rule, note=note or _whose(rule, own, models), counts=note is None)
            disabled = (rule for rule in file.disabled if rule.effect is effect)
            yield from (Listed(rule=rule, note="disabled", counts=False) for rule in disabled)
        for rule in (rule for rule in kept if rule.effect is effect):
            yield Listed(rule=rule, note=KEPT, is_kept=True)


def _whose(rule: Rule, file: str, models: Mapping[str, str]) -> str | None:
    """Return that no person is known to have wanted the rule, where that is so, and what it covers then."""
    client = client_of(rule, file, models)
    if client is None:
        return None
    return f"confirmed by the client {quote(client)} or its model, not by a person: {_PLAIN_ONLY}"


def _why_not(
    policy: Policy, file: ConfigFile, rule: Rule, hidden: Mapping[int, Rule], now: datetime
) -> str | None:
    """Return why the rule does not count, None if it does."""
    loose = rule.effect is Effect.ALLOW and file.kind is FileKind.WORKSPACE
    if rule.expires_at is not None and rule.expires_at <= now:
        return f"expired {instant(rule.expires_at)}"
    if loose and not policy.trusted:
        return "does not apply: the file is not trusted"
    if policy.broken and rule.effect is Effect.ALLOW:
        return "does not apply while a file is broken"
    if loose and rule.tool == LAUNCH_TOOL:
        return "does not apply: only the user's file allows launches"
    if id(rule) in hidden:
        return f"never asks: allow {entry_text(hidden[id(rule)].entry)} comes first"
    return None


def rules_json(policy: Policy, now: datetime, models: Mapping[str, str]) -> dict[str, Json]:
    """The rules of both files, and what is to be known of the files.

    `text` is the entry as JSON: a reader whose numbers are smaller than ours shows and sends back that.
    """
    rules = [
        rule_json(each.rule)
        | {
            "text": visible_json(each.rule.entry, indent=None),
            "counts": each.counts,
            "note": each.note,
            "kept": each.is_kept,
        }
        for each in listed_rules(policy, now, models)
    ]
    return {"rules": rules, "trusted": policy.trusted, "kept": kept_notice(policy), **_state_json(policy)}


def file_warnings(policy: Policy) -> Iterator[str]:
    """Yield what is odd about the files, though they can be used."""
    for file in (policy.loaded.user, policy.loaded.workspace):
        if file.config is not None:
            yield from (f"{file.path}: {warning}" for warning in file.config.warnings)
    yield from policy.settings.problems


def refuse_wire_name(name: str, policy: Policy) -> None:
    """Raise Invalid for the name that clients see a tool by: rules know it by another."""
    config = policy.loaded.workspace.config
    meant = colon_of(name, [*policy.settings.servers, *(config.servers if config else ())])
    if meant is not None:
        raise Invalid(f"{quote(name)} is the name that clients see", hint=f"rules say {quote(meant)}")


def _near_misses(policy: Policy, call: Call, judged: Judgement, now: datetime) -> Iterator[tuple[Rule, str]]:
    matched = {id(rule) for rule in judged.verdict.matched}
    if_trusted = {id(rule) for rule in policy.rules_if_trusted.judge(call, now=now).matched}
    in_force = {id(rule) for rule in policy.rules.naming(call.tool)}
    for rule in policy.rules_if_trusted.naming(call.tool):
        notes: list[str] = []
        if rule.expires_at is not None and rule.expires_at <= now:
            notes.append(f"expired {instant(rule.expires_at)}")
        elif id(rule) not in if_trusted:
            notes.append("its arguments do not match")
        if id(rule) not in in_force:
            notes.append("not trusted")
        if rule.effect is Effect.ALLOW and not notes and not judged.verdict.unsure:
            notes.append(f"no person confirmed it: {_PLAIN_ONLY}")
        if id(rule) not in matched:
            yield rule, "; ".join(notes)


def _state_json(policy: Policy) -> dict[str, Json]:
    return {"broken": [error.message for error in policy.broken], "warnings": [*file_warnings(policy)]}
