"""Telling a person elsewhere that a question waits: a signed message to `notify.webhook`, until it is taken.

Each question is delivered at least once for as long as it waits: a file keeps which were, so that the next
hub sends only the others. A message tells who wants what, never the arguments, and no answer to it decides
anything. A file that cannot be read tells of none, so a question is told twice rather than never; which of
several hubs tells is settled by a lock. How a message is sent, and what an answer means, is known elsewhere.
"""

import asyncio
import os
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pml.core.approvals.record import Approval, ApprovalId, Role, State
from pml.core.audit.entries import Entry
from pml.core.errors import PmlError
from pml.core.ports.queries import AuditQuery
from pml.core.ports.store import Subscription
from pml.core.text import visible
from pml.core.wire import requested_json
from pml.host.disk import unavailable
from pml.host.locks import is_same_file, open_lock_file, try_lock
from pml.host.private import private_directory
from pml.host.replace import replace_file
from pml.hub.webhook.post import NO_SECRET, SET_SECRET, Answered, Target, check_webhook, post, shown_url
from pml.service.approvals.lifecycle import all_pending
from pml.service.context import Context
from pml.web.clients import open_client

if TYPE_CHECKING:
    import httpx2

AT_ONCE: Final = 4
_PAGE: Final = 100
_STILL_WAITING: Final = frozenset({"approval.requested", "approval.attached", "approval.abandoned"})
_MAX_TOLD: Final = 100  # different complaints about one receiver


class _File(msgspec.Struct, frozen=True):
    sent: list[str]


class Sent:
    """The questions that wait and were delivered, kept in a file that is replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[ApprovalId, None] = {}
        self._is_saved = True

    def __contains__(self, approval_id: ApprovalId) -> bool:
        return approval_id in self._ids

    def add(self, approval_id: ApprovalId) -> None:
        self._ids[approval_id] = None
        self._is_saved = False

    def forget(self, approval_id: ApprovalId) -> None:
        if approval_id in self._ids:
            del self._ids[approval_id]
            self._is_saved = False

    async def load(self, waiting: Sequence[ApprovalId]) -> None:
        """Learn which of those that wait were delivered; a file that cannot be read tells of none."""
        kept: set[str] = set()
        with suppress(OSError, msgspec.MsgspecError):
            content = await asyncio.to_thread(self._path.read_bytes)
            kept = set(msgspec.json.decode(content, type=_File).sent)
        self._ids = {each: None for each in waiting if each in kept}
        self._is_saved = len(self._ids) == len(kept)

    async def save(self) -> None:
        """Raises: Unavailable."""
        if self._is_saved:
            return
        self._is_saved = True
        content = msgspec.json.encode(_File(sent=list(self._ids)))
        try:
            await asyncio.to_thread(replace_file, self._path, content, mode=0o600)
        except OSError as exc:
            self._is_saved = False
            raise unavailable(str(self._path), exc) from exc


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long is waited, and before which attempt: the last of `waits_s` is before all further ones.

    `jitter`: receivers that were down are not met by all hubs at once. `longest_s`: whatever a receiver says,
    it is asked again. `look_s`: how soon a new URL or secret applies, and the net for lost wake-ups.
    """

    waits_s: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0, 300.0)
    jitter: float = 0.2
    timeout_s: float = 10.0
    longest_s: float = 3600.0
    look_s: float = 1.0

    def wait_s(self, tries: int) -> float:
        """Return how long to wait after so many attempts."""
        return self.waits_s[min(tries, len(self.waits_s)) - 1] * random.uniform(1, 1 + self.jitter)


@dataclass(kw_only=True)
class Deliveries:
    """What `/metrics` tells."""

    delivered: int = 0
    failed: int = 0


class Webhook:
    """The deliveries of one hub. `base` is its address for people; `key` may block, and raise PmlError."""

    def __init__(
        self,
        context: Context,
        *,
        workspace: str,
        base: str,
        key: Callable[[], str | None],
        tell: Callable[[str], None],
        pace: Pace | None = None,
    ) -> None:
        self.counts = Deliveries()
        self.context = context
        self._workspace = workspace
        self._base = base
        self._key = key
        self._tell = tell
        self.pace = pace or Pace()
        self._told: set[str] = set()
        self._known: Target | None = None

    async def follow(self) -> None:
        """Deliver to whom the user's file names now; return when it names none, or another.

        Called again and again; of all hubs of a home one delivers. Raises: PmlError.
        """
        target = await self._target()
        if target is None:
            return
        if target != self._known:
            self._known = target
            self._told.clear()
        folder = run_folder(self.context.home)
        with alone(folder / "webhook.lock") as is_alone:
            if is_alone:
                sent = Sent(folder / "webhook.json")
                timeout_s = self.pace.timeout_s
                async with open_client(target.url, connect_s=timeout_s, read_s=timeout_s) as client:
                    await _Round(self, target, client, sent).run()

    async def _target(self) -> Target | None:
        """Return to whom to deliver; None, having told why, if that cannot be."""
        user = self.context.configs.of(self._workspace).read().user
        if user.error is not None:
            self.complain(f"nothing is delivered while {visible(str(user.error))}")
            return None
        url = None if user.config is None else user.config.webhook
        if url is None:
            self._told.clear()
            return None
        try:
            check_webhook(url)
            key = await asyncio.to_thread(self._key)
        except PmlError as exc:
            self.complain(
                f"{visible(exc.message)}; {visible(exc.hint)}" if exc.hint else visible(exc.message)
            )
            return None
        if key is None:
            self.complain(f"{NO_SECRET}; {SET_SECRET}")
            return None
        return Target(url, key)

    def complain(self, text: str) -> None:
        """Tell it, but once."""
        if text not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(text)
            self._tell(text)

    async def is_for(self, target: Target) -> bool:
        """Tell whether the target is still the one to deliver to."""
        return await self._target() == target

    async def deliver(
        self, approval_id: ApprovalId, target: Target, client: "httpx2.AsyncClient"
    ) -> Answered | None:
        """Try once to tell that the question waits; None if it does not any more, or is not a person's."""
        record = await self.context.store.approvals.get(approval_id)
        if record is None or not self._is_open(record):
            return None
        session = await self.context.store.sessions.get(record.session_id)
        if session is None:
            return None
        delivery = f"{record.id}.requested"
        message = requested_json(record, session, delivery=delivery, url=f"{self._base}/#/card/{record.id}")
        answered = await post(
            client,
            target,
            msgspec.json.encode(message),
            delivery=delivery,
            at_s=int(self.context.clock.now().timestamp()),
            timeout_s=self.pace.timeout_s,
        )
        if answered.problem is not None:
            again = "" if answered.is_done else "; it is tried again"
            self.complain(f"the webhook at {shown_url(target.url)} {answered.problem}{again}")
        return answered

    def _is_open(self, record: Approval) -> bool:
        waits = record.status is State.PENDING and self.context.clock.now() < record.expires_at
        return waits and Role.PERSON in record.deciders


@dataclass(kw_only=True)
class _Owed:
    """A question that is to be delivered, when, and how often that was tried."""

    due_at: float = 0.0
    tries: int = 0


class _Round:
    """All deliveries to one target: what waited when it began, then what the log tells."""

    def __init__(self, hook: Webhook, target: Target, client: "httpx2.AsyncClient", sent: Sent) -> None:
        self._hook = hook
        self._target = target
        self._client = client
        self._sent = sent
        self._owed: dict[ApprovalId, _Owed] = {}  # oldest first; also those that are being delivered
        self._running: dict[ApprovalId, asyncio.Task[None]] = {}
        self._place = 0
        self._hold_until = 0.0  # what the receiver asked for holds for every question
        self._look_at = 0.0

    async def run(self) -> None:
        """Deliver until the target is another. Raises: PmlError."""
        store = self._hook.context.store
        with store.changes.watch() as changes:
            self._place = await store.audit.last_seq()
            waiting = [record.id async for record in all_pending(self._hook.context)]
            await self._sent.load(waiting)
            self._owed = {each: _Owed() for each in waiting if each not in self._sent}
            try:
                async with asyncio.TaskGroup() as group:
                    while await self._is_current():
                        is_level = await self._catch_up()
                        self._start_due(group)
                        await self._rest(changes, self._hook.pace.look_s if is_level else 0.0)
            finally:
                with suppress(PmlError):  # then some are told twice
                    await self._sent.save()

    async def _is_current(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return True
        self._look_at = now + self._hook.pace.look_s
        return await self._hook.is_for(self._target)

    async def _catch_up(self) -> bool:
        """Learn what has happened, and keep what was delivered; tell whether there is no more for now."""
        try:
            await self._sent.save()
            return await self._read_page()
        except PmlError as exc:  # the store was busy, or the disk is full: the next time tells
            self._hook.complain(f"the webhook: {visible(exc.message)}")
            return True

    async def _read_page(self) -> bool:
        links = await self._hook.context.store.audit.list(AuditQuery(after=self._place, limit=_PAGE))
        for link in links:
            self._heed(link.entry)
            self._place = link.seq
        return len(links) < _PAGE

    def _heed(self, entry: Entry) -> None:
        if entry.approval_id is None or not entry.kind.startswith("approval."):
            return
        approval_id = ApprovalId(entry.approval_id)
        if entry.kind not in _STILL_WAITING:
            self._owed.pop(approval_id, None)
            self._sent.forget(approval_id)
        elif entry.kind == "approval.requested" and approval_id not in self._sent:
            self._owed.setdefault(approval_id, _Owed())

    def _start_due(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._hold_until:
            return
        for approval_id, owed in self._owed.items():
            if len(self._running) >= AT_ONCE:
                return
            if owed.due_at <= now and approval_id not in self._running:
                self._running[approval_id] = group.create_task(self._attempt(approval_id, owed))

    async def _attempt(self, approval_id: ApprovalId, owed: _Owed) -> None:
        hook = self._hook
        try:
            answered = await hook.deliver(approval_id, self._target, self._client)
        except PmlError:  # the store was busy
            answered = Answered(is_done=False)
        finally:
            del self._running[approval_id]
        if answered is None:
            self._owed.pop(approval_id, None)
            return
        hook.counts.delivered += answered.is_done and answered.problem is None
        hook.counts.failed += not answered.is_done
        if answered.is_done and self._owed.pop(approval_id, None) is not None:  # it still waits
            self._sent.add(approval_id)
        now = asyncio.get_running_loop().time()
        if not answered.is_done:
            owed.tries += 1
            owed.due_at = now + hook.pace.wait_s(owed.tries)
        if answered.after_s is not None:
            self._hold_until = now + min(answered.after_s, hook.pace.longest_s)

    async def _rest(self, changes: Subscription, at_most_s: float) -> None:
        """Return when something has changed, an attempt has ended or is due, or time has passed."""
        now = asyncio.get_running_loop().time()
        dues = [owed.due_at for each, owed in self._owed.items() if each not in self._running]
        if dues and len(self._running) < AT_ONCE:
            at_most_s = min(at_most_s, max(0.0, max(min(dues), self._hold_until) - now))
        changed = asyncio.ensure_future(changes.wait(at_most_s))
        try:
            await asyncio.wait({changed, *self._running.values()}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done():
                changed.result()
        finally:
            changed.cancel()


def run_folder(home: str) -> Path:
    """Raises: Unavailable."""
    folder = Path(home) / "run"
    try:
        return private_directory(folder)
    except OSError as exc:
        raise unavailable(str(folder), exc) from exc


@contextmanager
def alone(path: Path) -> Generator[bool]:
    """Hold the lock for the block, if no other process does. Raises: Unavailable."""
    try:
        descriptor = open_lock_file(str(path), create=True)
    except OSError as exc:
        raise unavailable(str(path), exc) from exc
    try:
        yield try_lock(descriptor) and is_same_file(descriptor, str(path))
    finally:
        os.close(descriptor)
