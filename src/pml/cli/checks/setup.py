"""The checks of `pml doctor`: each looks at one thing and says what to do about it. None changes anything."""

import os
import shutil
import sys
import tempfile
from collections.abc import Container, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pml.cli.terminal.cards import short
from pml.cli.terminal.output import count
from pml.core.approvals.record import Approval, instant
from pml.core.config.file import ModelMayApprove, OffUntil
from pml.core.config.merged import Settings, loosening, unset_text
from pml.core.errors import Invalid, MayNotDecide, PmlError, Unavailable
from pml.core.ports.records import Intent
from pml.core.ports.world import FileState
from pml.core.rules.ruleset import Effect, rule_text
from pml.core.rules.unknown_names import Doubt
from pml.core.servers.process_launch import missing_command
from pml.core.servers.remote_target import RemoteTarget
from pml.core.sessions.token import Token, TokenRole
from pml.core.text import visible, visible_json

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.audit.chain import Verification
    from pml.service.policy.policy import Policy

SHOWN: Final = 5  # of a long list; the hint names the command that shows all

# what servers and their packages leave there has the modes that they chose; a closed home covers it, as it
# does the sockets, whose modes are those of the umask
_OF_SERVERS: Final = frozenset({"state", "servers", "cache"})
_OTHER_HOME: Final = "set PML_HOME to a directory that this user can write"


class Status(StrEnum):
    OK = "ok"
    ABSENT = "absent"  # not there, and need not be
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found; the hint is the next step."""

    name: str
    status: Status
    message: str
    hint: str | None = None


def check_file(name: str, file: FileState) -> Iterator[Check]:
    """Yield whether a configuration file is sound, and what in it does not apply."""
    if file.error is not None:
        hint = file.error.hint or "fix it; until then no file allows anything"
        yield Check(name=name, status=Status.FAIL, message=visible(file.error.message), hint=hint)
    elif file.config is None:
        yield Check(
            name=name, status=Status.OK, message=f"{visible(file.path)} does not exist; the defaults hold"
        )
    else:
        yield Check(name=name, status=Status.OK, message=visible(file.path))
        for warning in file.config.warnings:
            yield Check(name=name, status=Status.WARN, message=warning, hint=f"edit {visible(file.path)}")


def check_trust(file: FileState, *, trusted: bool) -> Check:
    if file.config is None:
        return Check(name="trust", status=Status.OK, message="nothing to trust")
    if trusted:
        return Check(name="trust", status=Status.OK, message="the workspace's file is trusted as it is now")
    if loosening(file.config) is None:
        return Check(
            name="trust", status=Status.OK, message="the workspace's file only tightens: needs no trust"
        )
    return Check(
        name="trust",
        status=Status.WARN,
        message="the workspace's file is not trusted: its allows and servers do not apply",
        hint="look at what it would allow, and trust it: `pml trust`",
    )


def check_kept(policy: "Policy") -> Iterator[Check]:
    """Yield that rules are kept which the workspace's file does not have."""
    from pml.service.policy.policy import kept_notice

    notice = kept_notice(policy)
    if notice is not None:
        hint = "put the file right; or `pml trust` trusts other content, `pml trust --forget` lets them go"
        yield Check(name="kept rules", status=Status.WARN, message=notice, hint=hint)


def check_servers(settings: Settings) -> Iterator[Check]:
    """Yield what keeps a configured server from being started."""
    for unusable in settings.unusable.values():
        off = unusable.is_switched_off
        hint = None if off else unusable.hint or f"edit {visible(unusable.source.file)}"
        status = Status.OK if off else Status.WARN
        yield Check(name="servers", status=status, message=visible(unusable.problem), hint=hint)
    for server in settings.servers.values():
        target = server.target
        if target.unset:
            hint = "set it where your client or `pml serve` is started, or give a default: `${NAME:-default}`"
            yield Check(name="servers", status=Status.WARN, message=unset_text(server), hint=hint)
        elif isinstance(target, RemoteTarget):
            continue  # asking it would send its headers before anything needs it
        elif shutil.which(target.command, path=target.env.get("PATH")) is None:
            yield Check(
                name="servers",
                status=Status.WARN,
                message=f"command `{visible(target.shown.command)}` of server `{server.name}` was not found",
                hint=missing_command(target.command),
            )


def check_registry(files: Sequence[FileState]) -> Iterator[Check]:
    """Yield the folders that files name as registry, and that are not there. By URL none is asked."""
    for file in files:
        for registry in () if file.config is None else file.config.registries:
            if "://" in registry or os.path.isdir(registry):
                continue
            yield Check(
                name="registry",
                status=Status.WARN,
                message=f"registry folder {visible(registry)} is not there",
                hint=f"`registry` in {visible(file.path)} names it; `pml publish … --to DIR` makes one",
            )


def check_rule(doubt: Doubt) -> Check:
    """Tell of a rule that names what no known server has; a deny that protects nothing fails."""
    is_loud = doubt.is_void and doubt.rule.effect is Effect.DENY
    what = "this deny protects nothing: " if is_loud else ""
    return Check(
        name="rules",
        status=Status.FAIL if is_loud else Status.WARN,
        message=f"{what}{visible(doubt.message)}: {visible(rule_text(doubt.rule))}",
        hint=None if doubt.hint is None else visible(doubt.hint),
    )


def check_asking(settings: Settings, now: datetime) -> Check:
    """Tell loudly when asking is off."""
    if settings.approval.asking_enabled(now):
        ttl_s = settings.approval.ttl_s
        return Check(name="asking", status=Status.OK, message=f"on; {ttl_s} s to answer, and to collect")
    enabled = settings.approval.enabled
    until = f" until {instant(enabled.until_at)}" if isinstance(enabled, OffUntil) else ""
    return Check(
        name="asking",
        status=Status.WARN,
        message=f"ASKING IS OFF{until}: everything that no rule denies runs without asking",
        hint="remove `approval.enabled` from the user's config.json",
    )


_MODEL: Final = {
    ModelMayApprove.IF_NO_FORM: (
        Status.OK,
        "a model may confirm a plain call where its client has no form to show",
        'for people only, set `approval.model_may_approve` to "never" in the user\'s config.json',
    ),
    ModelMayApprove.NEVER: (Status.OK, "a model never approves; it only collects what people decided", None),
    ModelMayApprove.ALWAYS: (
        Status.WARN,
        "a model may approve its own plain calls, also where a person could be asked",
        'set `approval.model_may_approve` to "if_no_form" or "never" in the user\'s config.json',
    ),
}


def check_model(settings: Settings) -> Check:
    value = settings.approval.model_may_approve
    status, meaning, hint = _MODEL[value]
    return Check(name="model_may_approve", status=status, message=f"{value}: {meaning}", hint=hint)


def check_forms(settings: Settings) -> Check:
    if not settings.approval.forms:
        message = "switched off: people decide, in the inbox or with `pml approvals`"
        hint = "remove `approval.forms` from the user's config.json to send clients forms"
        return Check(name="forms", status=Status.OK, message=message, hint=hint)
    message = (
        "sent to clients that declare them; `goose run` ends at any form: start `pml stdio --no-forms` there"
    )
    return Check(name="forms", status=Status.OK, message=message)


def check_home(home: Path) -> Iterator[Check]:
    """Yield whether only the user can reach what PML keeps."""
    from pml.host.private import too_open

    shown = visible(str(home))
    try:
        if not home.exists():
            yield _check_parent(home)
            return
        if not home.is_dir():
            hint = "move that file away, or set PML_HOME to a directory"
            yield Check(name="home", status=Status.FAIL, message=f"{shown} is not a directory", hint=hint)
            return
        if not os.access(home, os.W_OK | os.X_OK):
            problem = f"{shown} is read-only: nothing can be asked, decided or installed"
            yield Check(name="home", status=Status.FAIL, message=problem, hint=_OTHER_HOME)
            return
        if is_open := too_open(home):
            hint = f"chmod 700 {shown}"
            yield Check(name="home", status=Status.FAIL, message=f"others can reach {shown}", hint=hint)
        else:
            yield Check(name="home", status=Status.OK, message=f"{shown}, only for this user")
        skipped = frozenset[str]() if is_open else _OF_SERVERS
        found = [path for path in _files(home, but=skipped) if is_open or not path.is_socket()]
        open_files = [path for path in found if too_open(path)]
    except OSError as exc:
        yield Check(name="home", status=Status.FAIL, message=f"{shown}: {exc.strerror}", hint=_OTHER_HOME)
        return
    if open_files:
        names = _some([visible(str(path.relative_to(home))) for path in open_files])
        hint = f"chmod -R go-rwx {shown}"
        yield Check(name="home", status=Status.WARN, message=f"others may read {names}", hint=hint)


def check_disk(home: Path) -> Iterator[Check]:
    """Yield that the disk which holds PML's files is full."""
    from pml.host.disk import is_full

    parent = next(path for path in (home, *home.parents) if path.exists())
    if is_full(str(parent)):
        message = f"the disk that holds {visible(str(home))} is full"
        hint = "free some space: until then nothing can be asked, decided or installed"
        yield Check(name="disk", status=Status.FAIL, message=message, hint=hint)


def _check_parent(home: Path) -> Check:
    """Tell whether `home` could be created. Permissions alone do not say, so it is tried, and undone."""
    shown = visible(str(home))
    parent = next(path for path in home.parents if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".pml-", dir=parent):
            pass
    except OSError as exc:
        problem = f"{shown} cannot be created: {visible(str(parent))}: {exc.strerror}"
        return Check(name="home", status=Status.FAIL, message=problem, hint=_OTHER_HOME)
    return Check(name="home", status=Status.OK, message=f"{shown} does not exist yet; first use creates it")


def _files(home: Path, *, but: Container[str]) -> list[Path]:
    """Return all that is beneath `home`, except in the folders `but`; no link is followed."""
    top = [path for path in home.iterdir() if path.name not in but]
    below = (each for path in top if path.is_dir() and not path.is_symlink() for each in path.rglob("*"))
    return sorted(path for path in (*top, *below) if not path.is_symlink() and path.exists())


def check_database(path: Path) -> Check:
    from pml.store.sqlite.connection import OLDEST_SQLITE, inspect_database

    if not os.path.exists(path):
        return Check(name="database", status=Status.OK, message="none yet; the first approval creates it")
    try:
        health = inspect_database(path)
    except Unavailable as exc:
        return failed("database", exc)
    if health.problems:
        found = _some([visible(problem) for problem in health.problems])
        hint = "stop PML, keep a copy, and save the rows with `sqlite3 FILE .recover`"
        return Check(name="database", status=Status.FAIL, message=f"damaged: {found}", hint=hint)
    if not health.sqlite_is_safe:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        return Check(
            name="database",
            status=Status.FAIL,
            message=f"SQLite {health.sqlite} can corrupt a database that several processes write",
            hint=f"install an `apsw` with SQLite {oldest} or later: `pip install --upgrade apsw`",
        )
    return Check(name="database", status=Status.OK, message=f"sound; SQLite {health.sqlite}")


def check_audit(verification: "Verification") -> Check:
    problems = verification.problems()
    if problems:
        found = _some([f"{each.what} (chain {visible(each.chain)})" for each in problems])
        return Check(
            name="audit",
            status=Status.FAIL,
            message=f"the log was changed afterwards: {found}",
            hint="`pml audit verify` lists all of it",
        )
    seen = f"{count(verification.entries, 'entry', 'entries')} in {count(verification.chains, 'chain')}"
    return Check(name="audit", status=Status.OK, message=f"{seen}, none changed since they were written")


def check_remembered(intents: Sequence[Intent]) -> Check:
    """Tell of an "always" that has not reached its file."""
    if not intents:
        return Check(name="remembered", status=Status.OK, message="every `always` has reached its file")
    entries = _some([visible_json(intent.entry, indent=None) for intent in intents])
    return Check(
        name="remembered",
        status=Status.WARN,
        message=f"decided as `always` but not in {visible(intents[0].workspace)}/.pml.json yet: {entries}",
        hint="fix that file; the next `pml approvals list` writes them",
    )


def check_waiting(waiting: Sequence[Approval]) -> Check:
    if not waiting:
        return Check(name="waiting", status=Status.OK, message="nothing waits for an answer")
    names = _some([f"{short(record.id)} {visible(record.tool_name)}" for record in waiting])
    return Check(
        name="waiting",
        status=Status.OK,
        message=f"{count(len(waiting), 'question')} waiting: {names}",
        hint="pml approvals list",
    )


_TOOLS: Final = (
    ("deno", "to install and run servers of npm", "pip install deno"),
    ("uv", "to install servers of PyPI", "pip install uv"),
)


def check_tools() -> Iterator[Check]:
    """Yield which programs are there; none of them is needed to answer approvals."""
    beside = str(Path(sys.executable).parent)  # where PyPI's deno and uv put their programs
    for tool, purpose, how in _TOOLS:
        path = shutil.which(tool) or shutil.which(tool, path=beside)
        if path is None:
            yield Check(name=tool, status=Status.WARN, message=f"not found; needed {purpose}", hint=how)
        else:
            yield Check(name=tool, status=Status.OK, message=visible(path))
    yield check_containment()


def check_installed(place: "Place") -> Check:
    """Tell what is installed, without reading its files: that is `pml deps verify`."""
    from pml.app import open_installer

    try:
        installed = open_installer(place).all_installed()
    except PmlError as exc:
        hint = exc.hint or "fix it; until then nothing that is installed can be started"
        return Check(name="installed", status=Status.FAIL, message=visible(exc.message), hint=hint)
    if not installed:
        return Check(name="installed", status=Status.OK, message="no server is installed")
    gone = [name for name, each in installed.items() if not os.path.isdir(each.path)]
    if gone:
        hint = f"reinstall it with `pml deps install {visible(gone[0])}`"
        message = f"the files are missing of {_some([visible(name) for name in gone])}"
        return Check(name="installed", status=Status.WARN, message=message, hint=hint)
    names = _some([visible(each.dependency.title) for each in installed.values()])
    return Check(name="installed", status=Status.OK, message=names, hint="pml deps verify")


def check_variables(place: "Place", *, trusted: bool) -> Iterator[Check]:
    """Yield what is wrong with the places that variables come from."""
    from pml.app import open_variables

    workspace = str(place.workspace) if trusted else None
    for problem in open_variables(place).problems(workspace=workspace):
        yield Check(name="variables", status=Status.WARN, message=visible(problem), hint="fix that file")


def check_webhook(settings: Settings, place: "Place") -> Iterator[Check]:
    """Yield whether new questions would be sent to the webhook. Sends nothing."""
    from pml.app import open_variables
    from pml.hub.webhook import post as webhook

    if settings.webhook is None:
        return
    try:
        webhook.check_webhook(settings.webhook)
        has_secret = webhook.SECRET in open_variables(place).secrets.names()
    except Invalid as exc:
        yield Check(name="webhook", status=Status.WARN, message=visible(exc.message), hint=exc.hint)
        return
    if has_secret:
        shown = webhook.shown_url(settings.webhook)
        told = f"while a hub runs, new questions are sent to {shown}, signed"
        yield Check(name="webhook", status=Status.OK, message=told)
    else:
        yield Check(name="webhook", status=Status.WARN, message=webhook.NO_SECRET, hint=webhook.SET_SECRET)


def check_containment() -> Check:
    """Tell what holds the servers that PML starts on this machine, and why nothing stronger does."""
    from pml.core.packages.permissions import Containment
    from pml.upstream.containment.box import probe

    probed = probe()
    if probed.reason is None:
        return Check(name="containment", status=Status.OK, message=f"servers are contained by {probed.kind}")
    how = "not contained" if probed.kind is Containment.NONE else f"contained by {probed.kind} only"
    mend = "install the package `bubblewrap`" if "not installed" in probed.reason else None
    hint = mend or ("allow bwrap to make user namespaces" if sys.platform == "linux" else None)
    return Check(
        name="containment", status=Status.WARN, message=f"servers are {how}: {probed.reason}", hint=hint
    )


def failed(name: str, error: Unavailable) -> Check:
    return Check(name=name, status=Status.FAIL, message=visible(error.message), hint=error.hint)


def _some(words: Sequence[str]) -> str:
    more = len(words) - SHOWN
    return ", ".join(words[:SHOWN]) + (f" and {more} more" if more > 0 else "")


if TYPE_CHECKING:
    from pml.service.context import Context

_SOON: Final = timedelta(days=7)
_ANOTHER: Final = "`pml token create --role person` makes another, `pml inbox --link` logs a browser in again"


def check_tokens(tokens: Sequence[Token], now: datetime) -> Iterator[Check]:
    """Yield whether tokens of people are about to end, and which never do."""
    valid = [token for token in tokens if token.role is TokenRole.PERSON and token.is_live(now)]
    soon = [token for token in valid if _ends_soon(token, now)]
    endless = [token for token in valid if token.expires_at is None]
    for token in soon:
        message = f"{_named(token)} ends at {instant(token.expires_at or now)}"
        yield Check(name="tokens", status=Status.WARN, message=message, hint=_ANOTHER)
    for token in endless:
        message = f"{_named(token)} decides anything and has no end"
        hint = f"`pml token revoke {token.id}` ends it"
        yield Check(name="tokens", status=Status.OK, message=message, hint=hint)
    if not soon and not endless:
        message = f"{count(len(valid), 'token')} of people, none about to end"
        yield Check(name="tokens", status=Status.OK, message=message)


async def check_token_file(context: "Context", path: str | None) -> list[Check]:
    """Return whether the token that is given in a file is that of a person; nothing where none is given."""
    from pml.service.sessions.persons import TOKEN_FILE, prove_person

    if path is None:
        return []
    try:
        await prove_person(context, path)
    except MayNotDecide as exc:
        return [Check(name="token file", status=Status.WARN, message=visible(exc.message), hint=exc.hint)]
    return [Check(name="token file", status=Status.OK, message=f"{TOKEN_FILE} holds a person's token")]


def _ends_soon(token: Token, now: datetime) -> bool:
    """Tell whether it ends within a week, and most of its time is over: some are made for an hour."""
    if token.expires_at is None:
        return False
    left = token.expires_at - now
    return left <= _SOON and left <= (token.expires_at - token.created_at) / 4


def _named(token: Token) -> str:
    return f"the token {token.id} of {visible(token.name)}"
