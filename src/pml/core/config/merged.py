"""Merged settings: the user's file and the workspace's united, with the defaults filled in.

A workspace's file may only tighten until it is trusted: its deny and ask rules always apply, what loosens
or starts something applies only when `trusted`. Until then the denies and asks of its last trusted content
are kept beside its own. Who trusts, and how that is remembered, is not known here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from pml.core.config.file import (
    ApprovalKeys,
    ConfigFile,
    FileKind,
    ModelMayApprove,
    OffUntil,
    ParentMayDecide,
    Unlisted,
)
from pml.core.rules.globs import covers
from pml.core.rules.ruleset import Effect, Rule
from pml.core.servers.process_facts import ProcessFacts
from pml.core.servers.remote_facts import RemoteFacts
from pml.core.servers.spec import ServerSpec, Unusable
from pml.core.text import visible_json
from pml.core.values import Json, canonical

DEFAULT_IDLE_S: Final = 300
DEFAULT_TTL_S: Final = 300
DEFAULT_KEEP_DAYS: Final = 30

_T = TypeVar("_T")
_EMPTY_USER: Final = ConfigFile(path="", kind=FileKind.USER)
_EMPTY_WORKSPACE: Final = ConfigFile(path="", kind=FileKind.WORKSPACE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalSettings:
    """How PML asks, and who may answer."""

    ttl_s: int = DEFAULT_TTL_S
    unlisted: Unlisted = Unlisted.EVERY_CALL
    model_may_approve: ModelMayApprove = ModelMayApprove.IF_NO_FORM
    forms: bool = True  # whether clients are sent forms at all
    parent_may_decide: ParentMayDecide = "unlisted"
    enabled: bool | OffUntil = True

    def asking_enabled(self, now: datetime) -> bool:
        """Tell whether PML asks at `now`. Denying is never off."""
        return now >= self.enabled.until_at if isinstance(self.enabled, OffUntil) else self.enabled


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings in force. `expose` None offers all tools of `servers`; `problems` are for people.

    `expose_within` are the tools that a file which nobody trusts lets be offered: it can only offer fewer.
    `unusable` are the names that start nothing, and mean no other server, with the reason.
    """

    rules: tuple[Rule, ...]
    servers: Mapping[str, ServerSpec]
    unusable: Mapping[str, Unusable]
    expose: tuple[str, ...] | None
    expose_within: tuple[str, ...] | None
    prespawn: tuple[str, ...]
    idle_s: int
    registries: tuple[str, ...]
    cloud: str | None
    registry_prefix: str | None
    approval: ApprovalSettings
    allow_unverified: bool
    min_age_days: int
    webhook: str | None
    keep_days: int
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loosening:
    """What trusting a workspace's file would change: for the person who is asked to.

    `drops` are denies and asks of its last trusted content, which would be kept no longer.
    """

    allows: tuple[str, ...] = ()
    launches: tuple[ProcessFacts | RemoteFacts, ...] = ()
    settings: Mapping[str, Json] = field(default_factory=dict[str, Json])
    drops: tuple[str, ...] = ()


def unite(
    user: ConfigFile | None, workspace: ConfigFile | None, *, trusted: bool, kept: Sequence[Rule] = ()
) -> Settings:
    """Return the settings in force; `trusted` says whether a person trusts the workspace's exact content.

    `kept` are rules of another content that apply beside its own.
    """
    own, given = user or _EMPTY_USER, workspace or _EMPTY_WORKSPACE
    loose = given if trusted else _EMPTY_WORKSPACE
    servers, unusable = _unite_servers(own, given, trusted=trusted)
    return Settings(
        rules=(
            *own.rules,
            *(rule for rule in given.rules if trusted or rule.effect is not Effect.ALLOW),
            *kept,
        ),
        servers=servers,
        unusable=unusable,
        expose=_unite_lists(own.expose, loose.expose),
        expose_within=None if trusted else given.expose,
        prespawn=_either(_unite_lists(own.prespawn, loose.prespawn), ()),
        idle_s=_either(loose.idle_s, _either(own.idle_s, DEFAULT_IDLE_S)),
        registries=loose.registries or own.registries,
        cloud=loose.cloud or own.cloud,
        registry_prefix=loose.registry_prefix or own.registry_prefix,
        approval=_approval(own.approval),
        allow_unverified=bool(own.allow_unverified),
        min_age_days=own.min_age_days or 0,
        webhook=own.webhook,
        keep_days=_either(own.keep_days, DEFAULT_KEEP_DAYS),
        problems=(
            *(each.problem for each in unusable.values() if not each.is_switched_off),
            *(unset_text(each) for each in servers.values() if each.target.unset),
        ),
    )


def kept_rules(last: ConfigFile, now: ConfigFile | None) -> tuple[Rule, ...]:
    """Return the denies and asks of the content trusted last that the content of now does not have."""
    present = _tightening(now)
    return tuple(rule for rule in last.rules if _tightens(rule) and _key(rule) not in present)


def is_looser(content: ConfigFile, than: ConfigFile) -> bool:
    """Tell whether one content lacks denies or asks of the other, or as tight allows and starts more."""
    tight, tighter = _tightening(content), _tightening(than)
    if tight != tighter:
        return tight < tighter
    loose, less = _loosening_keys(content), _loosening_keys(than)
    allows = [rule.tool for rule in content.rules if rule.effect is Effect.ALLOW and rule.entry == rule.tool]
    covered = {
        ("allow", visible_json(rule.entry, indent=None))
        for rule in than.rules
        if rule.effect is Effect.ALLOW and any(covers(glob, rule.tool) for glob in allows)
    }
    return loose != less and less - covered <= loose


def _tightening(config: ConfigFile | None) -> frozenset[tuple[str, bytes]]:
    return frozenset(_key(rule) for rule in (config.rules if config else ()) if _tightens(rule))


def _tightens(rule: Rule) -> bool:
    return rule.effect is not Effect.ALLOW and not rule.is_default


def _key(rule: Rule) -> tuple[str, bytes]:
    return rule.effect, canonical(rule.entry)


def _loosening_keys(config: ConfigFile) -> frozenset[tuple[str, object]]:
    found = loosening(config) or Loosening()
    return frozenset(
        (
            *(("allow", entry) for entry in found.allows),
            *(("start", repr(launch)) for launch in found.launches),
            *((f"set {name}", repr(value)) for name, value in found.settings.items()),
        )
    )


def loosening(workspace: ConfigFile, *, drops: Sequence[Rule] = ()) -> Loosening | None:
    """Return what trusting `workspace` would change, or None if it only tightens and needs no trust."""
    found = Loosening(
        drops=tuple(f"{rule.effect} {visible_json(rule.entry, indent=None)}" for rule in drops),
        allows=tuple(
            visible_json(rule.entry, indent=None) for rule in workspace.rules if rule.effect is Effect.ALLOW
        ),
        launches=tuple(server.target.facts(server.name) for server in workspace.servers.values()),
        settings={
            key: value
            for key, value in (
                ("expose", workspace.expose),
                ("prespawn", workspace.prespawn),
                ("idle_s", workspace.idle_s),
                ("registry", _one_or_all(workspace.registries)),
                ("cloud", workspace.cloud),
                ("registry_prefix", workspace.registry_prefix),
            )
            if value is not None
        },
    )
    return found if found.allows or found.launches or found.settings or found.drops else None


def _one_or_all(texts: tuple[str, ...]) -> Json:
    return texts[0] if len(texts) == 1 else texts or None


def _unite_servers(
    user: ConfigFile, given: ConfigFile, *, trusted: bool
) -> tuple[dict[str, ServerSpec], dict[str, Unusable]]:
    """Return the servers of both files, and what cannot be used; a name that both define is nobody's.

    An untrusted file defines no server, but what is wrong with its entries is told all the same.
    """
    loose = given if trusted else _EMPTY_WORKSPACE
    mine, theirs = _defined(user), _defined(loose)
    twice = {
        name: Unusable(
            name=name,
            why=f"is defined twice and not used: {_place(mine[name])} and {_place(theirs[name])}",
            hint="rename or remove one of the two",
            source=mine[name].source,
        )
        for name in mine
        if name in theirs
    }
    servers = {name: spec for name, spec in {**user.servers, **loose.servers}.items() if name not in twice}
    unusable = {**user.unusable, **given.unusable, **twice}
    return servers, {name: each for name, each in unusable.items() if name not in servers}


def _defined(config: ConfigFile) -> Mapping[str, ServerSpec | Unusable]:
    return {**config.servers, **config.unusable}


def _place(server: ServerSpec | Unusable) -> str:
    return f"{server.source.file}:{server.source.line}"


def unset_text(server: ServerSpec) -> str:
    """Return what a server lacks that cannot be started."""
    names = ", ".join(f"`{name}`" for name in server.target.unset)
    return f"server `{server.name}` cannot be started: {names} in {_place(server)} is not set where PML runs"


def _approval(keys: ApprovalKeys) -> ApprovalSettings:
    default = ApprovalSettings()
    return ApprovalSettings(
        ttl_s=_either(keys.ttl_s, default.ttl_s),
        unlisted=_either(keys.unlisted, default.unlisted),
        model_may_approve=_either(keys.model_may_approve, default.model_may_approve),
        forms=_either(keys.forms, default.forms),
        parent_may_decide=_either(keys.parent_may_decide, default.parent_may_decide),
        enabled=_either(keys.enabled, default.enabled),
    )


def _unite_lists(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None or other is None:
        return one if other is None else other
    return tuple(dict.fromkeys(one + other))


def _either(value: _T | None, default: _T) -> _T:
    return default if value is None else value
