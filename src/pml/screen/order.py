"""Keys and pasted text are handled one after another, in the order in which they came.

Textual gives a letter to the field itself, and an arrow to it by way of all that is around it: of two in one
write, the second could be first. And what follows the key that opens a field would come before it is open.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from textual.app import App
from textual.dom import DOMNode
from textual.driver import Driver
from textual.events import Event, Key, Paste

INTERRUPT: Final = "ctrl+c"  # it waits for no other
_DONE_S: Final = 5.0  # far longer than any key takes; what stops meanwhile never says that it is done


class InOrder(App[int]):
    """A program that hands out a key once whatever got the one before is done with it."""

    def __init__(self, *, driver_class: type[Driver]) -> None:
        super().__init__(driver_class=driver_class)
        self.keys: asyncio.Queue[Key | Paste] = asyncio.Queue()

    def on_mount(self) -> None:
        self.run_worker(self._hand_out, group="keys")

    async def on_event(self, event: Event) -> None:
        is_interrupt = isinstance(event, Key) and event.key == INTERRUPT
        if isinstance(event, Key | Paste) and not event.is_forwarded and not is_interrupt:
            self.keys.put_nowait(event)
        else:
            await super().on_event(event)

    async def _hand_out(self) -> None:
        while True:
            event = await self.keys.get()
            await _until_done([self.screen, self])  # one that has just opened sets the focus first
            path = (self.focused or self.screen).ancestors_with_self
            await super().on_event(event)
            await _until_done(path)
            self.keys.task_done()


async def _until_done(path: Sequence[DOMNode]) -> None:
    """Wait until each in turn has handled what it was sent until then."""
    for node in path:
        is_done = asyncio.Event()
        if node.call_later(is_done.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_done.wait(), _DONE_S)
