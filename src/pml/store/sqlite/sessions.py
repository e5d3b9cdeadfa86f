"""Sessions, tokens, launched agents and receipts in SQLite.

`store.sessions` says what a token, a run or a message must be; here they are loaded and saved.
"""

from datetime import datetime

import msgspec

from pml.core.approvals.record import Decider, SessionId
from pml.core.audit import entries
from pml.core.errors import NotFound
from pml.core.ports.records import Session
from pml.core.ports.session_store import Receipt
from pml.core.sessions.agent import Message, Run, RunState
from pml.core.sessions.process import Process
from pml.core.sessions.token import Token, TokenId
from pml.store.rows.mapper import micros, spell
from pml.store.rows.tables import MESSAGES, RECEIPTS, RUNS, SESSIONS, TOKENS
from pml.store.sessions import check_message, check_run, check_session, check_token, moved
from pml.store.sqlite.parts import Part
from pml.store.sqlite.writer import Transaction


class SqliteSessions(Part):
    async def start(self, session: Session) -> Session:
        check_session(session)

        def operation(tx: Transaction) -> Session:
            rows = tx.run("session", (session.id,))
            if rows and (known := SESSIONS.read(rows[0])).joined_by(session) is known:
                return known
            tx.run("insert_session", SESSIONS.values(session))
            tx.record(
                entries.session_started(
                    session.id, session.name, at=session.started_at, parent_id=session.parent_id
                )
            )
            return session

        return await self._writer.write(operation)

    async def end(self, session_id: SessionId, *, at: datetime) -> None:
        def operation(tx: Transaction) -> None:
            tx.run("end_session", (micros(at), session_id))
            if tx.changed():
                tx.run("delete_grants_of_session", (session_id,))
                tx.record(entries.session_ended(session_id, at=at))

        await self._writer.write(operation)

    async def get(self, session_id: SessionId) -> Session | None:
        rows = self._read.run("session", (session_id,))
        return SESSIONS.read(rows[0]) if rows else None

    async def live(self) -> list[Session]:
        return [SESSIONS.read(row) for row in self._read.run("live_sessions")]

    async def page(self, *, after: tuple[datetime, SessionId] | None, limit: int) -> list[Session]:
        if after is None:
            rows = self._read.run("latest_sessions", (limit,))
        else:
            rows = self._read.run("sessions_before", (micros(after[0]), after[1], limit))
        return [SESSIONS.read(row) for row in rows]

    async def descendants(self, session_id: SessionId) -> list[Session]:
        return [SESSIONS.read(row) for row in self._read.run("descendants", (session_id,))]

    async def forget(self, *, older_than: datetime) -> None:
        def operation(tx: Transaction) -> None:
            gone = spell([row[0] for row in tx.run("delete_old_sessions", (micros(older_than),))])
            for part in ("grants", "tokens", "runs", "messages"):
                tx.run(f"delete_{part}_of_sessions", (gone,))

        await self._writer.write(operation)

    async def set_process(self, session_id: SessionId, process: Process) -> None:
        def operation(tx: Transaction) -> None:
            tx.run("set_process", (process.pid, process.started, session_id))
            if not tx.changed():
                raise NotFound(f"no session `{session_id}`")

        await self._writer.write(operation)


class SqliteTokens(Part):
    async def add(self, token: Token, *, by: Decider | None) -> None:
        check_token(token)

        await self._writer.write(lambda tx: _add_token(tx, token, by=by))

    async def get(self, token_id: TokenId) -> Token | None:
        rows = self._read.run("token", (token_id,))
        return TOKENS.read(rows[0]) if rows else None

    async def all(self) -> list[Token]:
        return [TOKENS.read(row) for row in self._read.run("all_tokens")]

    async def revoke(self, token_id: TokenId, *, at: datetime, by: Decider | None) -> None:
        def operation(tx: Transaction) -> None:
            if not tx.run("token", (token_id,)):
                raise NotFound(f"no token `{token_id}`")
            _revoke(tx, "revoke_token", token_id, at=at, by=by)

        await self._writer.write(operation, durable=True)

    async def exchange(self, token_id: TokenId, new: Token, *, by: Decider) -> bool:
        check_token(new)

        def operation(tx: Transaction) -> bool:
            rows = tx.run("token", (token_id,))
            if not rows or not TOKENS.read(rows[0]).is_live(new.created_at):
                return False
            _add_token(tx, new, by=by)
            _revoke(tx, "revoke_token", token_id, at=new.created_at, by=by)
            return True

        return await self._writer.write(operation, durable=True)

    async def revoke_of(self, session_id: SessionId, *, at: datetime) -> None:
        await self._writer.write(
            lambda tx: _revoke(tx, "revoke_tokens_of_session", session_id, at=at, by=None), durable=True
        )

    async def forget(self, *, older_than: datetime) -> None:
        await self._writer.write(lambda tx: tx.run("delete_old_tokens", (micros(older_than),)))


def _add_token(tx: Transaction, token: Token, *, by: Decider | None) -> None:
    tx.run("insert_token", TOKENS.values(token))
    tx.record(
        entries.token_created(
            token.id,
            token.role,
            token.name,
            forms=token.forms,
            at=token.created_at,
            by=by,
            session_id=token.session_id,
        )
    )


def _revoke(tx: Transaction, query: str, which: str, *, at: datetime, by: Decider | None) -> None:
    for token_id, session_id in sorted(tx.run(query, (micros(at), which))):
        tx.record(entries.token_revoked(token_id, at=at, by=by, session_id=session_id))


class SqliteRuns(Part):
    async def add(self, run: Run) -> None:
        check_run(run)

        def operation(tx: Transaction) -> None:
            tx.run("insert_run", RUNS.values(run))
            tx.record(entries.session_changed(run.session_id, run.state, at=run.started_at))

        await self._writer.write(operation)

    async def get(self, session_id: SessionId) -> Run | None:
        rows = self._read.run("run", (session_id,))
        return RUNS.read(rows[0]) if rows else None

    async def live(self) -> list[Run]:
        return [RUNS.read(row) for row in self._read.run("live_runs")]

    async def move(
        self,
        session_id: SessionId,
        state: RunState,
        *,
        at: datetime,
        exit_code: int | None = None,
        result: str | None = None,
    ) -> Run:
        def operation(tx: Transaction) -> Run:
            rows = tx.run("run", (session_id,))
            if not rows:
                raise NotFound(f"no agent was launched in session `{session_id}`")
            run = moved(RUNS.read(rows[0]), state, at=at, exit_code=exit_code, result=result)
            ended_at = None if run.ended_at is None else micros(run.ended_at)
            tx.run("move_run", (run.state, run.exit_code, run.result, ended_at, session_id))
            tx.record(entries.session_changed(session_id, state, at=at))
            return run

        return await self._writer.write(operation)

    async def count(self, session_id: SessionId, *, turns: int, cost_usd: float) -> None:
        await self._writer.write(lambda tx: tx.run("count_run", (turns, cost_usd, session_id)))

    async def say(self, message: Message) -> Message:
        check_message(message)

        def operation(tx: Transaction) -> Message:
            values = (message.session_id, message.kind, message.text, micros(message.at))
            seq = tx.run("insert_message", values)[0][0]
            tx.record(
                entries.session_said(message.session_id, message.kind, message.text, seq=seq, at=message.at)
            )
            return msgspec.structs.replace(message, seq=seq)

        return await self._writer.write(operation)

    async def messages(self, session_id: SessionId, *, after: int = 0, limit: int = 100) -> list[Message]:
        return [MESSAGES.read(row) for row in self._read.run("messages_after", (session_id, after, limit))]

    async def tell(self, session_id: SessionId, *, up_to: int) -> None:
        await self._writer.write(lambda tx: tx.run("tell_run", (up_to, session_id)))

    async def forget_config(self, session_id: SessionId) -> None:
        await self._writer.write(lambda tx: tx.run("forget_config", (session_id,)))

    async def leftovers(self) -> list[Run]:
        return [RUNS.read(row) for row in self._read.run("leftover_runs")]


class SqliteReceipts(Part):
    async def begin(self, receipt: Receipt) -> Receipt | None:
        def operation(tx: Transaction) -> Receipt | None:
            tx.run("insert_receipt", RECEIPTS.values(receipt))
            if tx.changed():
                return None
            return RECEIPTS.read(tx.run("receipt", (receipt.principal, receipt.key))[0])

        return await self._writer.write(operation)

    async def close(self, receipt: Receipt) -> None:
        values = (receipt.body, receipt.status, receipt.principal, receipt.key, receipt.request)
        # synced: an answer that was seen is the answer after a loss of power too
        await self._writer.write(lambda tx: tx.run("close_receipt", values), durable=True)

    async def forget(self, *, older_than: datetime) -> None:
        await self._writer.write(lambda tx: tx.run("delete_old_receipts", (micros(older_than),)))
