"""Sessions in memory, with what belongs to them: journals of code, grants, tokens, agents, receipts."""

import json
from collections.abc import Callable, Container, Sequence
from datetime import datetime

import msgspec

from pml.core.approvals.record import Decider, OwnerId, SessionId
from pml.core.audit import entries as audit
from pml.core.code.journal import CodeRun, Kept, Step
from pml.core.errors import Conflict, NotFound
from pml.core.ports.records import Grant, Session
from pml.core.ports.session_store import Receipt
from pml.core.sessions.agent import ENDED_RUN, Message, Run, RunState
from pml.core.sessions.process import Process
from pml.core.sessions.token import Token, TokenId
from pml.store.journals import (
    UNKNOWN_KEPT,
    check_code_run,
    check_finished,
    no_run,
    refused_finish,
    taken_by,
)
from pml.store.sessions import check_message, check_run, check_session, check_token, moved
from pml.testing.audit import MemoryAudit, refuse_second


class MemoryJournals:
    """`asked_by` tells for which runs a question is open, or an answer not told that was due since."""

    def __init__(self, *, asked_by: Callable[[datetime], Container[str]]) -> None:
        self._asked_by = asked_by
        self._runs: dict[str, CodeRun] = {}
        self._dumps: dict[str, tuple[bytes, int]] = {}
        self._steps: dict[str, dict[int, Step]] = {}

    async def start(self, run: CodeRun) -> None:
        check_code_run(run)
        if run.root != run.id:
            self._must_exist(run.root)
        if run.id not in self._runs:
            self._runs[run.id] = _own(run)
            self._steps[run.id] = {}

    async def take(self, run_id: str, owner: OwnerId, *, dead: Sequence[OwnerId]) -> Kept | None:
        run = self._runs.get(run_id)
        if run is None:
            return None
        if run.owner is not None and run.owner not in dead:
            raise taken_by(run_id, run.owner)
        run = msgspec.structs.replace(run, owner=owner, taken=run.taken + 1)
        self._runs[run_id] = run
        steps = self._steps[run_id]
        dump, dumped = self._dumps.get(run_id, (None, 0))
        return Kept(
            run=_own(run), steps=[steps[number] for number in sorted(steps)], dump=dump, dumped=dumped
        )

    async def leave(self, run_id: str, *, dump: bytes | None, dumped: int) -> None:
        run = self._runs.get(run_id)
        if run is None:
            return
        self._runs[run_id] = msgspec.structs.replace(run, owner=None)
        self._dumps.pop(run_id, None)
        if dump is not None:
            self._dumps[run_id] = dump, dumped

    async def get(self, run_id: str) -> CodeRun | None:
        run = self._runs.get(run_id)
        return None if run is None else _own(run)

    async def begin(self, step: Step) -> None:
        self._must_exist(step.run_id)
        begun = Step(run_id=step.run_id, number=step.number, what=step.what, digest=step.digest)
        self._steps[step.run_id].setdefault(step.number, begun)

    async def take_back(self, run_id: str, number: int) -> None:
        step = self._steps.get(run_id, {}).get(number)
        if step is not None and step.place is None:
            del self._steps[run_id][number]

    async def finish(self, step: Step) -> None:
        check_finished(step)
        self._must_exist(step.run_id)
        steps = self._steps[step.run_id]
        known = steps.get(step.number)
        if known is not None and (known.place, known.what, known.digest) != (None, step.what, step.digest):
            raise refused_finish(step, known)
        if any(other.place == step.place for other in steps.values()):
            raise Conflict(f"run `{step.run_id}` has another step in place {step.place}")
        steps[step.number] = step

    async def end(self, run_id: str) -> None:
        for run in list(self._runs.values()):
            if run_id in (run.id, run.root) or run.id.startswith(f"{run_id}."):
                del self._runs[run.id], self._steps[run.id]
                self._dumps.pop(run.id, None)

    async def begun_with(self, principal: str, tool: str) -> Sequence[CodeRun]:
        found = (
            run
            for run in self._runs.values()
            if run.root == run.id and (run.principal, run.tool) == (principal, tool)
        )
        newest = sorted(found, key=lambda run: (run.started_at, run.id), reverse=True)
        return [_own(run) for run in newest]

    async def begun_in(self, session_id: SessionId) -> Sequence[str]:
        found = (run.id for run in self._runs.values() if run.session_id == session_id)
        return sorted(run_id for run_id in found if self._runs[run_id].root == run_id)

    async def owners(self) -> Sequence[OwnerId]:
        return sorted({run.owner for run in self._runs.values() if run.owner is not None})

    async def forget(self, *, older_than: datetime, dead: Sequence[OwnerId]) -> int:
        asked_by = self._asked_by(older_than)
        over = [
            run.id
            for run in self._runs.values()
            if run.root == run.id
            and run.started_at < older_than
            and (run.owner is None or run.owner in dead)
            and run.id not in asked_by
            and not self._is_recent(run, older_than)
        ]
        for run_id in over:
            await self.end(run_id)
        return len(over)

    def _is_recent(self, run: CodeRun, older_than: datetime) -> bool:
        """Tell whether a step of the run was finished since, or is one to ask a person about."""
        within = [each.id for each in self._runs.values() if each.root == run.id]
        steps = [step for run_id in within for step in self._steps[run_id].values()]
        is_unknown = any(step.place is None for step in steps) and run.started_at > older_than - UNKNOWN_KEPT
        since_ms = older_than.timestamp() * 1000
        return is_unknown or any(step.at_ms is not None and step.at_ms > since_ms for step in steps)

    def _must_exist(self, run_id: str) -> None:
        if run_id not in self._runs:
            raise no_run(run_id)


def _own(run: CodeRun) -> CodeRun:
    """Return a copy that no caller holds, with the keys in their order: code can tell it."""
    arguments, args = json.loads(msgspec.json.encode([run.arguments, run.args]))
    return msgspec.structs.replace(run, arguments=arguments, args=args)


class MemoryGrants:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[str, Grant] = {}
        self._ended: set[SessionId] = set()

    async def add(self, grant: Grant) -> None:
        self.refuse_second(grant)
        if grant.session_id in self._ended:
            return
        self._log.append(
            audit.grant_added(
                grant.session_id,
                grant.tool,
                at=grant.created_at,
                by=grant.by,
                approval_id=grant.approval_id,
                digest=grant.digest,
            )
        )
        self._rows[grant.id] = grant

    async def of(self, session_id: SessionId, tool: str) -> list[Grant]:
        return [row for row in await self.all() if row.session_id == session_id and row.tool == tool]

    async def all(self) -> list[Grant]:
        return sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))

    async def revoke(self, grant_id: str, *, at: datetime, by: Decider) -> None:
        row = self._rows.get(grant_id)
        if row is None:
            raise NotFound(f"no grant `{grant_id}`")
        self._log.append(audit.grant_revoked(row.session_id, row.tool, at=at, by=by))
        del self._rows[grant_id]

    def refuse_second(self, grant: Grant) -> None:
        refuse_second(grant.id, self._rows, "grant")

    def forget(self, session_id: SessionId) -> None:
        """Drop the session's grants; until it begins again it gets no new ones."""
        self._ended.add(session_id)
        self._rows = {key: row for key, row in self._rows.items() if row.session_id != session_id}

    def begin(self, session_id: SessionId) -> None:
        self._ended.discard(session_id)


class MemoryTokens:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[TokenId, Token] = {}

    async def add(self, token: Token, *, by: Decider | None) -> None:
        check_token(token)
        refuse_second(token.id, self._rows, "token")
        self._log.append(
            audit.token_created(
                token.id,
                token.role,
                token.name,
                forms=token.forms,
                at=token.created_at,
                by=by,
                session_id=token.session_id,
            )
        )
        self._rows[token.id] = token

    async def get(self, token_id: TokenId) -> Token | None:
        return self._rows.get(token_id)

    async def all(self) -> list[Token]:
        return sorted(self._rows.values(), key=lambda row: (row.created_at, row.id))

    async def revoke(self, token_id: TokenId, *, at: datetime, by: Decider | None) -> None:
        row = self._rows.get(token_id)
        if row is None:
            raise NotFound(f"no token `{token_id}`")
        if row.revoked_at is None:
            self._log.append(audit.token_revoked(token_id, at=at, by=by, session_id=row.session_id))
            self._rows[token_id] = msgspec.structs.replace(row, revoked_at=at)

    async def exchange(self, token_id: TokenId, new: Token, *, by: Decider) -> bool:
        row = self._rows.get(token_id)
        if row is None or not row.is_live(new.created_at):
            return False
        await self.add(new, by=by)
        await self.revoke(token_id, at=new.created_at, by=by)
        return True

    async def revoke_of(self, session_id: SessionId, *, at: datetime) -> None:
        for token_id in sorted(row.id for row in self._rows.values() if row.session_id == session_id):
            await self.revoke(token_id, at=at, by=None)

    async def forget(self, *, older_than: datetime) -> None:
        old = [row.id for row in self._rows.values() if row.ends_at is not None and row.ends_at < older_than]
        for token_id in old:
            if self._rows[token_id].session_id is None:
                del self._rows[token_id]

    def forget_session(self, session_id: SessionId) -> None:
        self._rows = {row.id: row for row in self._rows.values() if row.session_id != session_id}


class MemoryRuns:
    def __init__(self, log: MemoryAudit) -> None:
        self._log = log
        self._rows: dict[SessionId, Run] = {}
        self._messages: list[Message] = []
        self._last_seq = 0

    async def add(self, run: Run) -> None:
        check_run(run)
        refuse_second(run.session_id, self._rows, "run")
        self._log.append(audit.session_changed(run.session_id, run.state, at=run.started_at))
        self._rows[run.session_id] = run

    async def get(self, session_id: SessionId) -> Run | None:
        return self._rows.get(session_id)

    async def live(self) -> list[Run]:
        return [row for row in self._by_age() if row.state not in ENDED_RUN]

    async def move(
        self,
        session_id: SessionId,
        state: RunState,
        *,
        at: datetime,
        exit_code: int | None = None,
        result: str | None = None,
    ) -> Run:
        row = self._rows.get(session_id)
        if row is None:
            raise NotFound(f"no agent was launched in session `{session_id}`")
        after = moved(row, state, at=at, exit_code=exit_code, result=result)
        self._log.append(audit.session_changed(session_id, state, at=at))
        self._rows[session_id] = after
        return after

    async def count(self, session_id: SessionId, *, turns: int, cost_usd: float) -> None:
        self._change(session_id, turns=turns, cost_usd=cost_usd)

    async def say(self, message: Message) -> Message:
        check_message(message)
        stored = msgspec.structs.replace(message, seq=self._last_seq + 1)
        self._log.append(
            audit.session_said(stored.session_id, stored.kind, stored.text, seq=stored.seq, at=stored.at)
        )
        self._last_seq = stored.seq
        self._messages.append(stored)
        return stored

    async def messages(self, session_id: SessionId, *, after: int = 0, limit: int = 100) -> list[Message]:
        found = [row for row in self._messages if row.session_id == session_id and row.seq > after]
        return found[:limit]

    async def tell(self, session_id: SessionId, *, up_to: int) -> None:
        row = self._rows.get(session_id)
        if row is not None:
            self._change(session_id, told_seq=max(row.told_seq, up_to))

    async def forget_config(self, session_id: SessionId) -> None:
        self._change(session_id, config=None)

    async def leftovers(self) -> list[Run]:
        return [row for row in self._by_age() if row.state in ENDED_RUN and row.config is not None]

    def is_open(self, session_id: SessionId) -> bool:
        """Tell whether the session's agent still runs, or its configuration still stands."""
        row = self._rows.get(session_id)
        return row is not None and (row.state not in ENDED_RUN or row.config is not None)

    def forget(self, session_id: SessionId) -> None:
        self._rows.pop(session_id, None)
        self._messages = [row for row in self._messages if row.session_id != session_id]

    def _by_age(self) -> list[Run]:
        return sorted(self._rows.values(), key=lambda row: (row.started_at, row.session_id))

    def _change(self, session_id: SessionId, **changes: object) -> None:
        row = self._rows.get(session_id)
        if row is not None:
            self._rows[session_id] = msgspec.structs.replace(row, **changes)


class MemorySessions:
    def __init__(
        self,
        log: MemoryAudit,
        grants: MemoryGrants,
        tokens: MemoryTokens,
        runs: MemoryRuns,
        *,
        asked_in: Callable[[], set[SessionId]],
    ) -> None:
        self._log = log
        self._grants = grants
        self._tokens = tokens
        self._runs = runs
        self._asked_in = asked_in
        self._rows: dict[SessionId, Session] = {}

    async def start(self, session: Session) -> Session:
        check_session(session)
        row = self._rows.get(session.id)
        if row is not None and row.joined_by(session) is row:
            return row
        self._grants.begin(session.id)
        self._log.append(
            audit.session_started(
                session.id, session.name, at=session.started_at, parent_id=session.parent_id
            )
        )
        self._rows[session.id] = session
        return session

    async def end(self, session_id: SessionId, *, at: datetime) -> None:
        row = self._rows.get(session_id)
        if row is None or row.ended_at is not None:
            return
        self._log.append(audit.session_ended(session_id, at=at))
        self._rows[session_id] = msgspec.structs.replace(row, ended_at=at)
        self._grants.forget(session_id)

    async def get(self, session_id: SessionId) -> Session | None:
        return self._rows.get(session_id)

    async def live(self) -> list[Session]:
        found = (row for row in self._rows.values() if row.ended_at is None)
        return sorted(found, key=lambda row: (row.started_at, row.id))

    async def page(self, *, after: tuple[datetime, SessionId] | None, limit: int) -> list[Session]:
        found = sorted(self._rows.values(), key=_age, reverse=True)
        return [row for row in found if after is None or _age(row) < after][:limit]

    async def descendants(self, session_id: SessionId) -> list[Session]:
        found = {session_id}
        while more := {row.id for row in self._rows.values() if row.parent_id in found} - found:
            found |= more
        return sorted((self._rows[each] for each in found - {session_id}), key=_age)

    async def forget(self, *, older_than: datetime) -> None:
        asked_in = self._asked_in()
        kept = {
            row.id
            for row in self._rows.values()
            if row.ended_at is None
            or row.ended_at >= older_than
            or row.id in asked_in
            or self._runs.is_open(row.id)
        }
        while more := (self._rows.keys() & {self._rows[each].parent_id for each in kept}) - kept:
            kept |= more
        for session_id in self._rows.keys() - kept:
            del self._rows[session_id]
            self._tokens.forget_session(session_id)
            self._runs.forget(session_id)
            self._grants.forget(session_id)
            self._grants.begin(session_id)

    async def set_process(self, session_id: SessionId, process: Process) -> None:
        row = self._rows.get(session_id)
        if row is None:
            raise NotFound(f"no session `{session_id}`")
        self._rows[session_id] = msgspec.structs.replace(row, process=process)


class MemoryReceipts:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Receipt] = {}

    async def begin(self, receipt: Receipt) -> Receipt | None:
        known = self._rows.get((receipt.principal, receipt.key))
        if known is None:
            self._rows[receipt.principal, receipt.key] = receipt
        return known

    async def close(self, receipt: Receipt) -> None:
        row = self._rows.get((receipt.principal, receipt.key))
        if row is not None and row.request == receipt.request and row.body is None:
            answered = msgspec.structs.replace(row, body=receipt.body, status=receipt.status)
            self._rows[receipt.principal, receipt.key] = answered

    async def forget(self, *, older_than: datetime) -> None:
        self._rows = {key: row for key, row in self._rows.items() if row.made_at >= older_than}


def _age(session: Session) -> tuple[datetime, SessionId]:
    return session.started_at, session.id
