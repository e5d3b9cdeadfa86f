"""One configured server: started when it is needed, stopped when it idles, started again after a crash.

Concurrent callers share one start. A crash is told at once to whoever waits, and nothing is sent again. A row
of crashes ends only with a run that lasts: one that answers and then dies would go on for ever. A change
that a server announces is read first and told to the client after, so that the client finds it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from enum import StrEnum

from pml.core.errors import Changed, LoginRequired, PmlError, ServerFailed
from pml.core.servers.manifest import Manifest
from pml.core.servers.remote_target import RemoteTarget
from pml.core.servers.run import ContainedBy
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from pml.upstream.log import ServerLog, log_path
from pml.upstream.preflight import Surroundings, prepare
from pml.upstream.server_run import CALM_S, Ending, Run
from pml.upstream.transport.port import SessionEnded


class State(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    CRASH_LOOP = "crash-loop"
    UNREACHABLE = "unreachable"  # what runs elsewhere does not crash here
    NEEDS_LOGIN = "needs login"


class Server:
    """A server of one target."""

    def __init__(
        self, spec: ServerSpec, target_digest: str, around: Surroundings, *, after: "Server | None"
    ) -> None:
        self.spec = spec
        self.target_digest = target_digest
        self._around = around
        self._limits = around.limits
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._run: Run | None = None
        self._readying: asyncio.Task[Manifest] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._idling: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._offered: Manifest | None = None
        self._known: Manifest | None = None
        self._held: ContainedBy | None = None
        self._state = State.STOPPED
        self._starts = 0
        self._crashes = 0
        self._retry_at = 0.0
        self._last_error: str | None = None
        self._closed: str | None = None
        self._ended_run: Run | None = None  # whose session ended with a call; none has been answered since
        self._down_since: datetime | None = None  # of a remote server: when it was first found so

    @property
    def live(self) -> Manifest | None:
        """What the server offers; None if it does not run, or announced a change that is not read yet."""
        run = self._run
        is_read = run is not None and (not run.stale or run.is_crying_wolf(self._loop.time()))
        return self._offered if is_read else None

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        seen: Manifest | None,
        on_progress: Callable[[JsonObject], None] | None,
    ) -> bytes:
        """As `Servers.request`."""
        live = self.live
        if seen is not None and live is not seen:  # to wait here would be to run on a verdict that has aged
            raise Changed(f"server `{self.spec.name}` no longer offers what it offered")
        if live is None:
            await self.ready()
        if self._run is None:
            raise ServerFailed(self._last_error or f"server `{self.spec.name}` is not running")
        run = self._run
        try:
            result = await run.request(method, params, on_progress=on_progress)
        except SessionEnded as exc:
            raise self._not_sent_again(exc, run) from exc
        self._ended_run = None
        return result

    def _not_sent_again(self, exc: SessionEnded, run: Run) -> PmlError:
        """Return `exc`, after which the call may be made once more; another error if it was.

        Whether nothing has run is only the server's word: one that says so of every call would run it again.
        """
        self._ended_run = self._ended_run or run
        if self._ended_run is run:
            return exc
        return ServerFailed(
            f"server `{self.spec.name}` also ended a new session: the outcome is not known",
            hint=f"see `pml servers logs {self.spec.name}`",
        )

    async def ready(self) -> Manifest:
        """Return what the server offers now; start it or read again if need be. Raises: ServerFailed."""
        if self._closed is not None:
            raise ServerFailed(self._closed)
        if self._readying is None or self._readying.done():
            self._readying = self._loop.create_task(self._make_ready())
        # Shared: a caller that gives up must not end the start that others wait for.
        return await asyncio.shield(self._readying)

    async def close(self, reason: str) -> None:
        """Stop the server for good. Whatever waits fails with `reason`."""
        self._closed = reason
        if self._readying is not None:
            self._readying.cancel()
        if self._run is not None:
            self._run.end(reason, is_crash=False)
        before = [self._after.close(reason)] if self._after is not None else []
        tasks = [task for task in (self._readying, self._watching) if task is not None]
        await asyncio.gather(*before, *tasks, return_exceptions=True)
        self._around.board.take_down(self.spec.name)

    async def _make_ready(self, *, only: Run | None = None) -> Manifest:
        """Start the server or read again what it offers; with `only`, read in that run and start nothing."""
        try:
            if only is not None:
                return await self._read_again(only)
            if self._after is not None:
                await self._after.close(f"server `{self.spec.name}` was stopped: its configuration changed")
                self._after = None
            if self._watching is not None and self._run is not None and self._run.over.done():
                await asyncio.shield(self._watching)
            if self._run is not None:
                return self.live or await self._read_again(self._run)
            await self._wait_turn()
            return await self._start()
        except asyncio.CancelledError:
            if self._closed is None:
                raise
            raise ServerFailed(self._closed) from None

    async def _wait_turn(self) -> None:
        """Wait for the start after a crash, if it is near. Raises: ServerFailed with the state, if not."""
        left = self._retry_at - self._loop.time()
        if left <= 0:
            return
        if self._state is State.UNREACHABLE and left > self._limits.backoff_wait_s:
            raise ServerFailed(
                f"server `{self.spec.name}` is unreachable; last: {self._last_error}",
                hint=f"it is not tried again for {left:.0f} s; see `pml servers logs {self.spec.name}`",
            )
        if self._state is State.CRASH_LOOP or left > self._limits.backoff_wait_s:
            name = self.spec.name
            row = f"crashed {self._crashes} times in a row" if self._crashes > 1 else "crashed just now"
            state = f"is in a crash loop: it {row}" if self._state is State.CRASH_LOOP else row
            raise ServerFailed(
                f"server `{name}` {state}; last: {self._last_error}",
                hint=f"it is not started again for {left:.0f} s; see `pml servers logs {name}`",
            )
        await asyncio.sleep(left)

    async def _start(self) -> Manifest:
        spec, around = self.spec, self._around
        prepared = await prepare(spec, around)
        self._held = prepared.containment
        log = ServerLog(
            log_path(around.home, spec.name, self.target_digest),
            secrets=spec.target.secrets,
            required=prepared.values,
            limits=self._limits,
        )
        run = Run(spec, self.target_digest, log, self._limits)
        try:
            await run.open(prepared, around.client, lambda kind: self._changed(run, kind))
        except BaseException as exc:
            log.note(str(exc) or "not started")
            log.close()
            raise
        self._run = run
        self._watching = self._loop.create_task(self._watch(run))
        self._starts += 1
        try:
            self._post(State.STARTING)
            manifest = await self._in_time(run, run.greet(around.client))
            manifest = await self._keep(run, manifest)
            self._post(State.RUNNING)
        except ServerFailed as exc:
            run.end(exc.message, is_crash=True)
            raise
        except LoginRequired as exc:
            run.end(exc.message, is_crash=False, needs_login=True)
            raise
        except BaseException:
            run.end(self._closed or f"server `{spec.name}` was not wanted any more", is_crash=False)
            raise
        self._idling = self._loop.call_later(around.idle_s(), self._end_if_idle, run)
        return manifest

    async def _read_again(self, run: Run) -> Manifest:
        """Read what has changed. A server that does not tell now goes on: it may be busy with calls."""
        stale, run.stale = run.stale, set()
        before, self._offered = self._known, None
        try:
            manifest = await self._keep(run, await self._in_time(run, run.read(stale)))
        except BaseException:
            run.stale |= stale
            raise
        run.note_read(was_needed=manifest is not before, now=self._loop.time())
        return manifest

    async def _in_time(self, run: Run, reading: Coroutine[None, None, Manifest]) -> Manifest:
        try:
            async with asyncio.timeout(self._limits.start_s):
                return await reading
        except TimeoutError:
            late = f"did not say what it offers within {self._limits.start_s:g} s"
            raise ServerFailed(run.with_last_words(late)) from None

    async def _keep(self, run: Run, manifest: Manifest) -> Manifest:
        """Remember what the server offers, and tell the client of what is not as it was."""
        known = self._known
        try:
            known = known or await self._around.manifests.get(manifest.server, manifest.target_digest)
            if known != manifest:
                await self._around.manifests.put(manifest)
        except PmlError as exc:  # a cache, for lists while the server does not run: the call goes on
            run.log.note(f"not kept: {exc.message}")
        self._known = known if known == manifest and known is not None else manifest
        for kind in sorted(_changed_kinds(known, manifest)):
            self._around.client.changed(manifest.server, kind)
        # It may have died while its lists were read; what it offered is not to be taken for live.
        if run.over.done():
            raise ServerFailed(run.over.result().reason)
        self._offered = self._known
        return self._known

    def _changed(self, run: Run, kind: str) -> None:
        """Learn that the server announced a change: it counts at once, and is read and told soon."""
        run.stale.add(kind)
        if self._looking is None:
            self._looking = self._loop.call_later(0, self._look, run)

    def _look(self, run: Run) -> None:
        """Read what has changed although nobody calls. Where that fails, the next use reads."""
        self._looking = None
        if not run.stale or run.over.done():
            return
        is_reading = self._readying is not None and not self._readying.done()
        wait_s = CALM_S if is_reading else run.rest_s(self._loop.time())
        if wait_s > 0:
            self._looking = self._loop.call_later(wait_s, self._look, run)
            return
        self._readying = self._loop.create_task(self._make_ready(only=run))
        self._readying.add_done_callback(_take_note)

    def _end_if_idle(self, run: Run) -> None:
        idle_s = self._around.idle_s()
        quiet_s = self._loop.time() - run.peer.used_at if run.peer.is_idle else 0.0
        if quiet_s >= idle_s:
            run.end(f"server `{run.spec.name}` was stopped: it was idle", is_crash=False)
            self._offered = None
        else:
            self._idling = self._loop.call_later(idle_s - quiet_s, self._end_if_idle, run)

    async def _watch(self, run: Run) -> None:
        """See the run to its end, whatever ends it."""
        ending = await run.over
        self._offered = None
        for timer in (self._idling, self._looking):
            if timer is not None:
                timer.cancel()
        self._looking = None
        if ending.is_crash and self._around.board.was_stopped(run.spec.name, run.process):
            ending = Ending(reason=f"server `{run.spec.name}` was stopped by a person", is_crash=False)
        try:
            await run.stop(ending.reason)
        finally:
            self._run = None
            self._take_stock(run, ending)

    def _take_stock(self, run: Run, ending: Ending) -> None:
        self._last_error = ending.reason
        if ending.needs_login:
            self._crashes = 0
            self._post(State.NEEDS_LOGIN)
            return
        if not ending.is_crash:
            self._crashes = 0
            self._state = State.STOPPED
            self._around.board.take_down(run.spec.name)
            return
        now = self._loop.time()
        self._crashes = 1 if now - run.started_at >= self._limits.healthy_s else self._crashes + 1
        looping = self._crashes >= self._limits.crash_loop
        delay = self._limits.backoff_s * 2 ** (self._crashes - 1)
        self._retry_at = now + (
            self._limits.backoff_max_s if looping else min(delay, self._limits.backoff_max_s)
        )
        if isinstance(self.spec.target, RemoteTarget):
            if self._crashes == 1 or self._down_since is None:
                self._down_since = datetime.now(UTC)
            self._post(State.UNREACHABLE)
        else:
            self._post(State.CRASH_LOOP if looping else State.BACKOFF)

    def _post(self, state: State) -> None:
        self._state = state
        run = self._run
        self._around.board.post(
            self.spec.name,
            target_digest=self.target_digest,
            state=state,
            process=run.process if run is not None else None,
            restarts=max(0, self._starts - 1),
            last_error=self._last_error,
            containment=self._held,
            since=self._down_since if state is State.UNREACHABLE else None,
        )


def _take_note(reading: "asyncio.Task[Manifest]") -> None:
    """Take the failure of a reading that nobody may have waited for."""
    if not reading.cancelled():
        reading.exception()


def _changed_kinds(known: Manifest | None, now: Manifest) -> set[str]:
    was = known or Manifest(server=now.server, target_digest=now.target_digest, capabilities={})
    changed = {
        "tools": was.tools != now.tools,
        "prompts": was.prompts != now.prompts,
        "resources": (was.resources, was.templates) != (now.resources, now.templates),
    }
    return {kind for kind, has_changed in changed.items() if has_changed}
