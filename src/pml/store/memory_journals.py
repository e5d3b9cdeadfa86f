"""Journals of code in memory: as every store keeps them, for tests."""

import json
from collections.abc import Callable, Container, Sequence
from datetime import datetime

import msgspec

from pml.core.approvals import OwnerId, SessionId
from pml.core.errors import Conflict
from pml.core.journal import CodeRun, Kept, Step
from pml.store.journaling import (
    UNKNOWN_KEPT,
    check_code_run,
    check_finished,
    no_run,
    refused_finish,
    taken_by,
)


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
