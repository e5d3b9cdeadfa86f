"""The terminal inbox as a program: its look, its last guard against what a terminal would obey, its end.

The terminal's own colours are used, so it looks right on light and dark and over SSH. The mouse is left to
the terminal: text can be marked and copied.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter

from pml.core.approvals import Decider
from pml.core.text import pieces
from pml.screen.inbox import Inbox
from pml.screen.keys import know_alt_enter
from pml.screen.live import Work
from pml.service.desk import Desk

INTERRUPTED: Final = 130
_INSTEAD: Final = "�"


class NothingObeyed(LineFilter):
    """Lets no control character reach the terminal, from wherever it came."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isprintable() else Segment(_harmless(segment.text), segment.style)
            for segment in segments
        ]


def _harmless(text: str) -> str:
    return "".join(piece if isinstance(piece, str) else _INSTEAD for piece in pieces(text))


class InboxApp(App[int]):
    """`pml inbox`."""

    CSS_PATH = "inbox.tcss"
    TITLE = "PML inbox"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", show=False, priority=True)]

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self.inbox = Inbox(work)

    def on_mount(self) -> None:
        self.push_screen(self.inbox)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [NothingObeyed(), *super().get_line_filters()]

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED)


async def run_inbox(
    desk: Desk,
    *,
    by: Decider,
    who: str,
    store_key: Callable[[str, str], Awaitable[str]] | None = None,
) -> int:
    """Show the inbox on this terminal until the person leaves; return the exit code."""
    know_alt_enter()
    app = InboxApp(Work(desk=desk, by=by, who=who, store_key=store_key))
    code = await app.run_async(mouse=False)
    return INTERRUPTED if code is None else code
