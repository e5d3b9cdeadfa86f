"""Calls under the keys that their senders gave them: one that is sent again gets the answer of the first.

Kept in memory and within bounds: for each token the latest calls, of a long answer only that it was given.
What a call does is not known here.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from pml.core.identity import TokenId

KEPT_S: Final = 600.0  # whoever sends a call again does so within seconds
MAX_KEYS: Final = 256  # of one token
MAX_ANSWER: Final = 64 * 1024


class Run:
    """A call that runs or has run; `digest` is that of its request. `waiting` want its answer.

    `broken_off` is the answer of a call that was cancelled, `not_kept` that of one whose answer was too long,
    for those who ask later.
    """

    def __init__(
        self, digest: bytes, task: asyncio.Task[bytes], *, broken_off: bytes, not_kept: bytes
    ) -> None:
        self.digest = digest
        self.task: asyncio.Task[bytes] | None = task
        self.waiting = 0
        self.ended_at: float | None = None
        self.answer = not_kept
        self._broken_off = broken_off

    def line(self, task: asyncio.Task[bytes]) -> bytes:
        """Return what the task, which has ended, came to."""
        return self._broken_off if task.cancelled() else task.result()

    def end(self, *, at: float) -> None:
        """Keep what is to be answered from now on."""
        assert self.task is not None
        line = self.line(self.task)
        if len(line) <= MAX_ANSWER:
            self.answer = line
        self.task = None
        self.ended_at = at


class Replays:
    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._runs: dict[TokenId, OrderedDict[str, Run]] = {}

    def find(self, token_id: TokenId, key: str | None) -> Run | None:
        """Return the call that the token's holder made under `key`."""
        runs = self._runs.get(token_id)
        return None if runs is None or key is None else runs.get(key)

    def keep(self, token_id: TokenId, key: str, run: Run) -> None:
        """Keep a call that begins, and forget what is old or too many; what runs is never forgotten."""
        for each in list(self._runs):
            self._forget(each, keep=MAX_KEYS - (each == token_id))
        self._runs.setdefault(token_id, OrderedDict())[key] = run

    def _forget(self, token_id: TokenId, *, keep: int) -> None:
        runs, oldest = self._runs[token_id], self._now() - KEPT_S
        for key in [key for key, run in runs.items() if run.ended_at is not None and run.ended_at < oldest]:
            del runs[key]
        ended = [key for key, run in runs.items() if run.ended_at is not None]
        for key in ended[: max(0, len(runs) - keep)]:
            del runs[key]
        if not runs:
            del self._runs[token_id]
