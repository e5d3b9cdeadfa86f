"""A configuration file: every key typed, everything wrong refused at its line and column.

`None` means that the file does not set a key, so that `effective` can unite two files. Keys that only the
user's file may set are not even read from a workspace's. This module neither reads files nor knows whether
a workspace is trusted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, NoReturn
from urllib.parse import urlsplit

from pml.core.config.jsontext import Node, parse
from pml.core.config.section import Section
from pml.core.errors import ConfigInvalid
from pml.core.names import colon_of
from pml.core.rules.links import Disk
from pml.core.rules.matchers import Pointer, RuleInvalid
from pml.core.rules.ruleset import Effect, Rule, RuleSet, Source, parse_entry
from pml.core.servers.process_launch import folder
from pml.core.servers.spec import ServerSpec, Unusable, parse_servers
from pml.core.text import has_hidden, quote
from pml.core.values import kind_of

MAX_SECONDS: Final = 366 * 24 * 3600  # beyond a year it is a mistake, and timers overflow
MAX_DAYS: Final = 100 * 366
MAX_RULES: Final = 20_000  # in one list; every judgement and every look at the file takes longer with them
MAX_PAIRS: Final = 1_000_000
USER_ONLY: Final = ("approval", "install", "notify", "audit")

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}")


class FileKind(StrEnum):
    """Whose file it is: the user's own, or a workspace's, which anybody may have written."""

    USER = "user"
    WORKSPACE = "workspace"


class Unlisted(StrEnum):
    """When PML asks for a tool that no rule names."""

    IF_CLIENT_CANNOT = "if_client_cannot"
    EVERY_CALL = "every_call"


class ModelMayApprove(StrEnum):
    """When `continue_workflow {approved: true}` is a decision."""

    IF_NO_FORM = "if_no_form"
    NEVER = "never"
    ALWAYS = "always"


# What a parent session may decide for its descendants: everything, nothing, what no rule names, or the tools
# that globs list, whether a rule names them or not.
ParentMayDecide = bool | Literal["unlisted"] | tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OffUntil:
    """Asking is off until then, and on again afterwards."""

    until_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalKeys:
    """The keys beneath `approval`, as far as the file sets them."""

    ttl_s: int | None = None
    unlisted: Unlisted | None = None
    model_may_approve: ModelMayApprove | None = None
    forms: bool | None = None
    parent_may_decide: ParentMayDecide | None = None
    enabled: bool | OffUntil | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFile:
    """One file's settings. `warnings` are for people: what in it does not apply, or not as it seems to."""

    path: str
    kind: FileKind
    rules: tuple[Rule, ...] = ()
    disabled: tuple[Rule, ...] = ()  # to be shown; without matchers, so not to be judged by
    servers: Mapping[str, ServerSpec] = field(default_factory=dict[str, ServerSpec])
    unusable: Mapping[str, Unusable] = field(default_factory=dict[str, Unusable])
    expose: tuple[str, ...] | None = None
    prespawn: tuple[str, ...] | None = None
    idle_s: int | None = None
    registries: tuple[str, ...] = ()
    cloud: str | None = None
    registry_prefix: str | None = None
    approval: ApprovalKeys = ApprovalKeys()
    allow_unverified: bool | None = None
    min_age_days: int | None = None
    webhook: str | None = None
    keep_days: int | None = None
    warnings: tuple[str, ...] = ()


def parse_config(
    text: str, *, path: str, kind: FileKind, base_dir: str, paths: Disk, environ: Mapping[str, str]
) -> ConfigFile:
    """Return what `text`, read from `path`, sets. Relative paths in it begin at `base_dir`.

    `environ` has the values of variables that stand in the entries of servers. An entry that cannot be used
    is kept apart and reported; everything else that is wrong makes the file invalid.

    Raises: ConfigInvalid, with line, column, the key, what was expected and what was found.
    """
    root = parse(text, path=path)
    if not isinstance(root.value, dict):
        raise ConfigInvalid(
            path, root.line, root.column, f"the file must be an object, not {kind_of(root.value)}"
        )
    top = Section(path=path, node=root, notices=[])
    top.text("$schema")
    top.text("version")
    rules, disabled = _rules(top, base_dir=base_dir, paths=paths)
    servers = parse_servers(
        top, base_dir=base_dir, home=paths.home, environ=environ, is_users=kind is FileKind.USER
    )
    config = ConfigFile(
        path=path,
        kind=kind,
        rules=rules,
        disabled=disabled,
        servers=servers.usable,
        unusable=servers.unusable,
        expose=top.texts("expose"),
        prespawn=top.texts("prespawn"),
        idle_s=top.whole_number("idle_s", low=1, high=MAX_SECONDS),
        registries=_registries(top, base_dir=base_dir, home=paths.home),
        cloud=_url(top, "cloud"),
        registry_prefix=_registry_prefix(top),
    )
    config = _with_user_keys(config, top)
    _note_hidden_asks(top, config.rules, paths)
    for rule in config.rules:
        meant = colon_of(rule.tool, [*config.servers, *config.unusable])
        if meant is not None and rule.source is not None:
            line = rule.source.line
            top.note(line, f"{quote(rule.tool)} at line {line} names no tool: rules say {quote(meant)}")
    top.note_unknown()
    notices = sorted(top.notices, key=lambda notice: notice.line)
    return replace(config, warnings=tuple(notice.text for notice in notices))


def _with_user_keys(config: ConfigFile, top: Section) -> ConfigFile:
    """Add the keys that apply only in the user's file; in a workspace's they are reported and not read."""
    if config.kind is FileKind.WORKSPACE:
        for key in USER_ONLY:
            if top.get(key) is not None:
                line = top.node.keys[key].line
                top.note(line, f"`{key}` at line {line} applies only in the user's file and is ignored")
        return config
    approval, install, notify, audit = (top.section(key) or top.empty(key) for key in USER_ONLY)
    config = replace(
        config,
        approval=_approval(approval),
        allow_unverified=install.boolean("allow_unverified"),
        min_age_days=install.whole_number("min_age_days", low=0, high=MAX_DAYS),
        webhook=_url(notify, "webhook"),
        keep_days=audit.whole_number("keep_days", low=1, high=MAX_DAYS),
    )
    for section in (approval, install, notify, audit):
        section.note_unknown()
    return config


def _approval(section: Section) -> ApprovalKeys:
    return ApprovalKeys(
        ttl_s=section.whole_number("ttl_s", low=1, high=MAX_SECONDS),
        unlisted=section.choice("unlisted", Unlisted),
        model_may_approve=section.choice("model_may_approve", ModelMayApprove),
        forms=section.boolean("forms"),
        parent_may_decide=_parent_may_decide(section),
        enabled=_enabled(section),
    )


def _parent_may_decide(section: Section) -> ParentMayDecide | None:
    key = "parent_may_decide"
    match section.get(key):
        case Node(value="unlisted"):
            return "unlisted"
        case Node(value=bool()):
            return section.boolean(key)
        case None | Node(value=list()):
            return section.texts(key)
        case node:
            section.expect('"unlisted", true, false or an array of tool globs', key, node)


def _enabled(section: Section) -> bool | OffUntil | None:
    match section.get("enabled"):
        case None | Node(value=bool()):
            return section.boolean("enabled")
        case Node(value=dict()) as node:
            pause = section.within("enabled", node)
            until_at = _instant(pause, "until")
            if until_at is None:
                section.refuse("enabled", node, "has no `until`")
            pause.note_unknown()
            return OffUntil(until_at=until_at)
        case node:
            section.expect('true, false or `{"until": time}`', "enabled", node)


def _rules(top: Section, *, base_dir: str, paths: Disk) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return the rules in force, and those that are switched off."""
    rules: list[Rule] = []
    disabled: list[Rule] = []
    permissions = top.section("permissions")
    if permissions is None:
        return (), ()
    for effect in Effect:
        for index, node in enumerate(_entries(permissions, effect)):
            rule = _rule(permissions, effect, index, node, base_dir=base_dir, paths=paths)
            if rule is not None:
                rules.append(rule)
            elif isinstance(node.value, dict):
                source = Source(file=permissions.path, line=node.line)
                tool = str(node.value["tool"])
                disabled.append(Rule(effect=effect, tool=tool, entry=node.value, source=source))
    permissions.note_unknown()
    return tuple(rules), tuple(disabled)


def _entries(permissions: Section, effect: Effect) -> tuple[Node, ...]:
    node = permissions.get(effect)
    if node is not None and not isinstance(node.value, list):
        permissions.expect("an array of rules", effect, node)
    if node is not None and len(node.items) > MAX_RULES:
        permissions.refuse(effect, node, f"has {len(node.items):,} rules, more than {MAX_RULES:,}")
    return node.items if node else ()


def _rule(
    permissions: Section, effect: Effect, index: int, node: Node, *, base_dir: str, paths: Disk
) -> Rule | None:
    source = Source(file=permissions.path, line=node.line)
    try:
        return parse_entry(effect, node.value, source=source, base_dir=base_dir, paths=paths)
    except RuleInvalid as exc:
        name, at = _locate(permissions.named(f"{effect}[{index}]"), node, exc.pointer)
        problem = f"{quote(name)}: {exc.problem}"
        raise ConfigInvalid(permissions.path, at.line, at.column, problem, hint=exc.hint) from exc


def _locate(name: str, node: Node, pointer: Pointer) -> tuple[str, Node]:
    """Follow `pointer` from `node` as far as it leads."""
    for step in pointer:
        if isinstance(step, str) and step in node.members:
            name, node = f"{name}.{step}", node.members[step]
        elif isinstance(step, int) and step < len(node.items):
            name, node = f"{name}[{step}]", node.items[step]
    return name, node


def _note_hidden_asks(top: Section, rules: tuple[Rule, ...], paths: Disk) -> None:
    asks = sum(rule.effect is Effect.ASK for rule in rules)
    if asks * len(rules) > MAX_PAIRS:
        top.note(1, "too many rules to look for asks that an allow hides")
        return
    for ask, allow in RuleSet(rules, paths=paths).hidden_asks():
        if ask.source and allow.source:
            top.note(
                ask.source.line,
                f"ask {quote(ask.tool)} at line {ask.source.line} never asks: "
                f"allow {quote(allow.tool)} at line {allow.source.line} comes first",
            )


def _registries(top: Section, *, base_dir: str, home: str) -> tuple[str, ...]:
    """Return the registries in the order in which they are asked: one, or a list."""
    node = top.get("registry")
    if node is None or not isinstance(node.value, list):
        return tuple(filter(None, [_registry(top, "registry", base_dir=base_dir, home=home)]))
    members = {f"registry[{index}]": item for index, item in enumerate(node.items)}
    items = Section(path=top.path, node=replace(node, members=members), notices=top.notices)
    found = [_registry(items, key, base_dir=base_dir, home=home) for key in members]
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _registry(section: Section, key: str, *, base_dir: str, home: str) -> str | None:
    text = section.text(key)
    if text is not None and "://" in text:
        return _url(section, key)
    return folder(section, key, base_dir=base_dir, home=home)


def _registry_prefix(top: Section) -> str | None:
    text, node = top.text("registry_prefix"), top.get("registry_prefix")
    if text is not None and node is not None and not _PREFIX.fullmatch(text):
        top.refuse("registry_prefix", node, f"must be like `org.project`, not {quote(text)}")
    return text


def _url(section: Section, key: str) -> str | None:
    text, node = section.text(key), section.get(key)
    if text is None or node is None:
        return None
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, half of an IPv6 address
        usable = False
    if not usable or has_hidden(text) or " " in text:
        section.refuse(key, node, f"must be an http or https URL, not {quote(text)}")
    return text


def _instant(section: Section, key: str) -> datetime | None:
    text, node = section.text(key), section.get(key)
    if text is None or node is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
        return instant.astimezone(UTC) if instant.tzinfo is not None else _no_instant(section, key, node)
    except (ValueError, OverflowError):
        return _no_instant(section, key, node)


def _no_instant(section: Section, key: str, node: Node) -> NoReturn:
    expected = "a time with its zone, like `2030-01-31T12:00:00Z`"
    section.refuse(key, node, f"must be {expected}, not {quote(str(node.value))}")
