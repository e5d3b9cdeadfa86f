"""What the use cases need from the world, as Protocols. Each adapter serves one; `app` introduces them.

A store is a set of small parts over one database. Every method that changes something is one
transaction and returns only after the commit; what happens to approvals, sessions, grants, trust and
rules has its audit entry in that same transaction.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

import msgspec

from pml.core.approvals import Approval, ApprovalId, Decider, Event, OwnerId, SessionId, State
from pml.core.audit import Entry, Head, Link
from pml.core.bounds import MAX_PENDING_BYTES
from pml.core.config import ConfigFile, FileKind
from pml.core.errors import ConfigInvalid, Conflict
from pml.core.identity import ParentMay, TokenRole
from pml.core.journal import Journals
from pml.core.lookups import Tree
from pml.core.manifests import Manifest
from pml.core.processes import Process as Process
from pml.core.queries import ApprovalQuery as ApprovalQuery
from pml.core.queries import AuditQuery as AuditQuery
from pml.core.rules import Effect
from pml.core.servers import ServerSpec
from pml.core.supervising import Receipts, Runs, Tokens
from pml.core.values import Json, JsonObject


class Clock(Protocol):
    def now(self) -> datetime:
        """Return this instant, aware, in UTC."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """Return a fresh UUID."""
        ...


class Owners(Protocol):
    """Which processes on this store are alive, told by lock files that end with their process."""

    @property
    def me(self) -> OwnerId: ...

    def alive(self, owner: OwnerId) -> bool: ...

    def alive_others(self) -> Sequence[str]:
        """Return the names of all others that are alive."""
        ...


class Processes(Protocol):
    def running(self, process: Process) -> bool: ...

    def ancestors(self) -> list[Process]:
        """Return this process and all above it, nearest first."""
        ...

    def client(self) -> Process:
        """Return the process that had this one started: the nearest above it that is no mere launcher."""
        ...

    def feeds(self, process: Process) -> bool:
        """Tell whether `process` holds the other end of this one's standard input, or could."""
        ...

    def leader(self) -> Process:
        """Return the process that the terminal or job lasts as long as: its shell, as a rule."""
        ...

    def is_detached(self) -> bool:
        """Tell whether this process has no terminal and nobody above it but the system itself."""
        ...


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One agent connection (or a script's), with a parent or none.

    `tools` are globs of all that it may use, None where only the rules say. `waits`: it was launched with
    the permission tool, so every question of its calls is waited for. `ttl_s` is its own time to decide.
    `parent_may` is what those above it may answer for it, and `launches_unasked` that a person let it launch
    agents, and those beneath it too, without being asked each time.
    """

    id: SessionId
    name: str
    principal: str
    workspace: str
    parent_id: SessionId | None = None
    process: Process | None = None
    is_agent: bool
    role: TokenRole = TokenRole.SESSION
    tools: tuple[str, ...] | None = None
    waits: bool = False
    ttl_s: int | None = None
    parent_may: ParentMay = ParentMay.NOTHING
    launches_unasked: bool = False
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def gives(self) -> ParentMay:
        """The most that it and those above it may answer for its children: what was given for itself."""
        return ParentMay.ALL if self.parent_id is None else self.parent_may

    def joined_by(self, other: "Session") -> "Session":
        """Return the session after `other` starts it: itself while it lives, then `other`, without memory.

        Raises: Conflict if it is another principal's, workspace's or agent's.
        """
        if _belongs_to(self) != _belongs_to(other):
            raise Conflict(
                f"session `{self.id}` belongs to {self.principal}", hint="choose another id for the session"
            )
        return self if self.ended_at is None else other


def _belongs_to(session: Session) -> tuple[object, ...]:
    whose = (session.principal, session.workspace, session.parent_id, session.is_agent)
    return *whose, session.role, session.tools, session.waits


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A remembered allow: a tool in a session, as it was then; with `digest`, only these exact arguments."""

    id: str
    session_id: SessionId
    tool: str
    digest: str | None = None
    definition: str | None = None
    artefact: str | None = None
    approval_id: ApprovalId | None = None
    by: Decider
    created_at: datetime


class PausedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call that a workflow continues; `offered`: the client lists the tool by its own name."""

    tool: str
    arguments: JsonObject
    offered: bool
    prefix: str | None = None  # the publisher that the client spelt out


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A paused call that its principal can continue; lives as long as its approval.

    `call` is None where whoever asked runs the call itself. With `run_id`, code waits at a call of its own:
    `call` is then what started that code.
    """

    id: str
    approval_id: ApprovalId
    principal: str
    created_at: datetime
    call: PausedCall | None = None
    run_id: str | None = None
    continued_at: datetime | None = None


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """A person trusts exactly this content of the workspace file at this path."""

    path: str
    digest: str
    content: str
    by: Decider
    trusted_at: datetime


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """A content that a file had; None where it was trusted before contents were stored."""

    digest: str
    content: str | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a content of a file is trusted, and the digest of the one whose denies and asks are kept."""

    trusted: bool
    kept: str | None


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """An "always" that was decided and must reach the workspace's file, also after a crash."""

    id: str
    workspace: str
    effect: Effect
    entry: Json
    approval_id: ApprovalId
    created_at: datetime
    model: str | None = None  # the client whose model, or form over HTTP, said so: no person is known to


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a tool as it was when it was first used, or when a person accepted a change of it."""

    server: str
    launch: str
    action: str
    definition: JsonObject
    digest: str
    pinned_at: datetime


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a live approval as tells whether somebody still cares for it."""

    id: ApprovalId
    session_id: SessionId
    status: State
    owner: OwnerId
    abandoned_at: datetime | None


class Approvals(Protocol):
    async def ask(self, new: Approval, *, max_pending: int, max_bytes: int = MAX_PENDING_BYTES) -> Approval:
        """Store `new`, or attach to the record of the same question and run that is still open at its time.

        Raises: TooManyPending when the session already has `max_pending` undecided questions, or would have
        more than `max_bytes` of arguments in them.
        """
        ...

    async def advance(
        self, approval_id: ApprovalId, event: Event, *, remember: Grant | Intent | None = None
    ) -> Approval:
        """Apply `event` by compare-and-swap, store `remember` with it, and return the record after it.

        Raises: NotFound, and whatever `core.approvals.advance` raises; then nothing has changed.
        """
        ...

    async def get(self, approval_id: ApprovalId) -> Approval | None: ...

    async def find(self, prefix: str, *, limit: int) -> list[Approval]:
        """Return the approvals whose id begins with `prefix`."""
        ...

    async def page(self, query: ApprovalQuery) -> list[Approval]:
        """Return approvals beyond the query's (created_at, id): oldest first, or newest if it says so."""
        ...

    async def due(self, *, now: datetime, limit: int) -> list[Approval]:
        """Return pending and allowed approvals whose time is over at `now`."""
        ...

    async def count_pending(self) -> int:
        """Return how many questions wait, in all sessions."""
        ...

    async def held(self) -> list[Held]:
        """Return live approvals that depend on their owner: executing, or waited for without a workflow."""
        ...

    async def cleanup_old(self, *, older_than: datetime, at: datetime) -> int:
        """Delete approvals that ended before `older_than`; live ones and the audit log stay."""
        ...


class Sessions(Protocol):
    async def start(self, session: Session) -> Session:
        """Store `session`, or join the one with its id. Raises: what `Session.joined_by` raises."""
        ...

    async def end(self, session_id: SessionId, *, at: datetime) -> None:
        """End the session and forget its grants."""
        ...

    async def get(self, session_id: SessionId) -> Session | None: ...

    async def live(self) -> list[Session]: ...

    async def page(self, *, after: tuple[datetime, SessionId] | None, limit: int) -> list[Session]:
        """Return sessions newest first, ended ones too, older than `after`."""
        ...

    async def descendants(self, session_id: SessionId) -> list[Session]:
        """Return the sessions that this one started, and those they started, ended ones too."""
        ...

    async def forget(self, *, older_than: datetime) -> None:
        """Delete ended sessions that no approval belongs to, with their runs, messages and tokens."""
        ...

    async def set_process(self, session_id: SessionId, process: Process) -> None:
        """Tell which process holds the session. Raises: NotFound."""
        ...


class Grants(Protocol):
    async def add(self, grant: Grant) -> None: ...

    async def of(self, session_id: SessionId, tool: str) -> list[Grant]: ...

    async def all(self) -> list[Grant]: ...

    async def revoke(self, grant_id: str, *, at: datetime, by: Decider) -> None:
        """Raises: NotFound."""
        ...


class Workflows(Protocol):
    async def issue(self, workflow: Workflow) -> None:
        """Store the workflow; one with its id that exists already stays as it is."""
        ...

    async def get(self, workflow_id: str) -> Workflow | None: ...

    async def consume(self, workflow_id: str, *, at: datetime) -> None:
        """Mark it used. Raises: NotFound, AlreadyClaimed."""
        ...


class Trusts(Protocol):
    async def add(self, trust: Trust, *, ends: Collection[str] = ()) -> None:
        """Trust this content of the file, and keep it; contents with the digests `ends` no longer."""
        ...

    async def forget(self, path: str, digest: str) -> None:
        """Trust this content no longer: the file was replaced."""
        ...

    async def holds(self, path: str, digest: str) -> bool: ...

    async def standing(self, path: str, digest: str | None) -> Standing: ...

    async def of(self, path: str) -> Sequence[Content]:
        """Return the contents of the file that are trusted."""
        ...

    async def keep(self, path: str, content: Content) -> None:
        """Keep the denies and asks of this content, which is trusted and was found in the file."""
        ...

    async def kept(self, path: str) -> Content | None:
        """Return the content that was trusted, or found trusted, last."""
        ...

    async def remove(self, path: str, *, at: datetime, by: Decider, kept: bool = False) -> int:
        """Trust no content of the file; return how many were. `kept`: and keep nothing of any."""
        ...


class Intents(Protocol):
    async def add(self, intent: Intent) -> None: ...

    async def open(self) -> list[Intent]: ...

    async def forget(self, intent_id: str) -> None:
        """Drop an intent that is not to be carried out any more."""
        ...

    async def close(self, intent_id: str, *, at: datetime) -> None:
        """Mark the intent done: its entry stands in the file, as a model's if that said so."""
        ...

    async def of_models(self, workspace: str) -> Mapping[str, str]:
        """Return the entries that a model had written to the workspace's file, or is about to, by client."""
        ...

    async def unmark(self, workspace: str, entry: Json) -> None:
        """Learn that a person has written or removed the entry: it is no model's any more."""
        ...


class Manifests(Protocol):
    """What servers offered when they last ran: a cache, so that listing tools starts nothing."""

    async def get(self, server: str, launch: str) -> Manifest | None: ...

    async def put(self, manifest: Manifest) -> None:
        """Keep the manifest, in place of an older one of the same server and launch."""
        ...


class Pins(Protocol):
    async def get(self, server: str, launch: str, action: str) -> Pin | None: ...

    async def put(self, pin: Pin, *, by: Decider | None) -> None:
        """Pin the tool to this definition; `by` is who accepted the change, None at the first use.

        A first use of a tool that is pinned already changes nothing. Raises: Conflict if it is pinned to
        another definition.
        """
        ...


class Audit(Protocol):
    async def record(self, entry: Entry) -> None: ...

    def note(self, entry: Entry) -> Awaitable[None]:
        """Record an entry that concerns no approval, now; what is returned is done once it is committed."""
        ...

    async def list(self, query: AuditQuery) -> Sequence[Link]:
        """Return what matches, oldest first."""
        ...

    async def last_seq(self) -> int:
        """Return the place of the newest entry, 0 if there is none."""
        ...

    def links(self) -> AsyncIterator[Link]:
        """Yield every link, by chain, then n."""
        ...

    async def heads_kept(self) -> Sequence[Head]:
        """Return the chain heads kept outside the database."""
        ...


class Subscription(Protocol):
    async def wait(self, timeout_s: float) -> bool:
        """Return True when something may have changed since the last return, False after `timeout_s`."""
        ...


class Changes(Protocol):
    def watch(self, approval_id: ApprovalId | None = None) -> AbstractContextManager[Subscription]:
        """Be woken by every change to this approval (None: by all that the log tells), made by any process.

        What changed before the call does not wake: subscribe, then read, then wait.
        """
        ...


class Store(Protocol):
    @property
    def approvals(self) -> Approvals: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def receipts(self) -> Receipts: ...
    @property
    def grants(self) -> Grants: ...
    @property
    def workflows(self) -> Workflows: ...
    @property
    def journals(self) -> Journals: ...
    @property
    def trusts(self) -> Trusts: ...
    @property
    def intents(self) -> Intents: ...
    @property
    def manifests(self) -> Manifests: ...
    @property
    def pins(self) -> Pins: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def changes(self) -> Changes: ...

    async def close(self) -> None: ...


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration file as it is now: absent (no digest), sound (a config) or broken (an error).

    `text` is what the digest is of, None where it is no text.
    """

    path: str
    digest: str | None = None
    text: str | None = None
    config: ConfigFile | None = None
    error: ConfigInvalid | None = None


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    user: FileState
    workspace: FileState


class ConfigFiles(Protocol):
    """The user's file and one workspace's."""

    @property
    def paths(self) -> Tree: ...

    def programs(self, spec: ServerSpec) -> Mapping[str, str]:
        """Return the hash of each program of the server in the workspace, and what else is pinned."""
        ...

    def read(self) -> Loaded:
        """Return both files; the same object as before while neither has changed."""
        ...

    def parse_workspace(self, text: str, *, name: str) -> ConfigFile:
        """Return what another content of the workspace's file says. Raises: ConfigInvalid, with `name`."""
        ...

    def create(
        self, which: FileKind, *, before_replace: Callable[[str | None, str, str], None] | None = None
    ) -> bool:
        """Create the file with the defaults; False when there is one. Raises: as `add_rule`."""
        ...

    def set_user_value(self, pointer: Sequence[str], value: Json) -> None:
        """Set one value of the user's file, everything else as it was. May wait for another writer.

        Raises: ConfigInvalid, Changed, Unavailable; then nothing is written.
        """
        ...

    def add_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> bool:
        """Append `entry` to its list; False when it stands there already. May wait for another writer.

        `before_replace` gets the digests of the old content (None: no file) and of the new, and the new.
        Raises: ConfigInvalid for a broken file, which stays as it is; Unavailable.
        """
        ...

    def remove_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> int:
        """Remove the entries equal to `entry`, or with that id, and return how many there were."""
        ...

    def switch_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        enabled: bool,
        before_replace: Callable[[str | None, str, str], None] | None = None,
    ) -> int:
        """Disable or enable the entries that are `entry`, but for that, or have that id; return how many."""
        ...


class Configs(Protocol):
    def of(self, workspace: str) -> ConfigFiles: ...
