"""Ports of the store: a set of small parts over one database.

Every method that changes something is one transaction and returns only after the commit; what happens to
approvals, sessions, grants, trust and rules has its audit entry in that same transaction.
"""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from pml.core.approvals.bounds import MAX_PENDING_BYTES
from pml.core.approvals.events import Event
from pml.core.approvals.record import Approval, ApprovalId, Decider, SessionId
from pml.core.audit.chain import Head, Link
from pml.core.audit.entries import Entry
from pml.core.code.journal import Journals
from pml.core.ports.queries import ApprovalQuery, AuditQuery
from pml.core.ports.records import Content, Grant, Held, Intent, Pin, Session, Standing, Trust, Workflow
from pml.core.ports.session_store import Receipts, Runs, Tokens
from pml.core.servers.manifest import Manifest
from pml.core.sessions.process import Process
from pml.core.values import Json


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

        Raises: NotFound, and whatever `core.approvals.states.advance` raises; then nothing has changed.
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

    async def get(self, server: str, target_digest: str) -> Manifest | None: ...

    async def put(self, manifest: Manifest) -> None:
        """Keep the manifest, in place of an older one of the same server and target."""
        ...


class Pins(Protocol):
    async def get(self, server: str, target_digest: str, action: str) -> Pin | None: ...

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
