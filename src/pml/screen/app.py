"""The terminal inbox as a program: its look, its last guard against what a terminal would obey, its end.

The terminal's own colours are used, so it looks right on light and dark and over SSH. The mouse is left to
the terminal: text can be marked and copied.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.worker import WorkerFailed

from pml.core.approvals.record import Decider
from pml.core.text import pieces
from pml.screen.inbox import INTERRUPTED, Inbox
from pml.screen.keystrokes import know_alt_enter
from pml.screen.live import Work
from pml.screen.order import INTERRUPT, InOrder
from pml.service.context import Context

if sys.platform == "win32":
    from textual.drivers.windows_driver import WindowsDriver as TerminalDriver
else:
    from textual.drivers.linux_driver import LinuxDriver as TerminalDriver

_INSTEAD: Final = "�"
_AS_WRITTEN: Final = "\x1b[8l"  # ECMA-48 BDSM: draw letters in the order in which they come
_BY_DIRECTION: Final = "\x1b[8h"
_EMPTY: Final = "\x1b[H\x1b[J"  # tmux wraps lines wider than before into what the shell then shows


class NothingObeyed(LineFilter):
    """Lets no control character reach the terminal, from wherever it came."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isprintable() else Segment(_harmless(segment.text), segment.style)
            for segment in segments
        ]


def _harmless(text: str) -> str:
    return "".join(piece if isinstance(piece, str) else _INSTEAD for piece in pieces(text))


class AsWritten(TerminalDriver):
    """Keeps a terminal that knows of it from swapping letters that are written from right to left.

    Whatever ends or suspends the inbox, a signal too, the shell has the terminal as it was.
    """

    def start_application_mode(self) -> None:
        super().start_application_mode()
        self.write(_AS_WRITTEN)

    def stop_application_mode(self) -> None:
        self.write(_BY_DIRECTION + _EMPTY)
        super().stop_application_mode()


class InboxApp(InOrder):
    """`pml inbox`."""

    CSS_PATH = "inbox.tcss"
    TITLE = "PML inbox"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding(INTERRUPT, "interrupt", show=False, priority=True)]

    def __init__(self, work: Work) -> None:
        super().__init__(driver_class=AsWritten)
        self.theme = "ansi-dark"
        self.inbox = Inbox(work)
        self.crash: BaseException | None = None

    def on_mount(self) -> None:
        self.push_screen(self.inbox)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [NothingObeyed(), *super().get_line_filters()]

    def _handle_exception(self, error: Exception) -> None:
        if self.crash is None:
            self.crash = error.error if isinstance(error, WorkerFailed) else error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End without a word: what Textual would print has all locals in it, and so a key that was typed."""
        self.panic()

    def action_interrupt(self) -> None:
        self.inbox.leave(INTERRUPT)


async def run_inbox(
    context: Context,
    *,
    by: Decider,
    who: str,
    workspace: str,
    store_key: Callable[[str, str], Awaitable[str]] | None = None,
) -> int:
    """Show the inbox on this terminal until the person leaves; return the exit code.

    Raises: whatever no part of it knew how to tell.
    """
    know_alt_enter()
    app = InboxApp(Work(context=context, by=by, who=who, workspace=workspace, store_key=store_key))
    try:
        code = await app.run_async(mouse=False)
    finally:
        await app.inbox.send_left()
    if app.crash is not None:
        raise app.crash
    return INTERRUPTED if code is None else code
