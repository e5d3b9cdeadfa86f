"""Dialogs over the stream: Escape closes each of them and decides nothing; half an arrow key does not.

What is typed or pasted in the first moment after one opened does not send it: it was not meant for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar, Final, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key, Resize
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from pml.core.errors import Invalid
from pml.core.text import visible
from pml.core.values import JsonObject, loads_object
from pml.screen.draw.panes import LinesPane
from pml.screen.draw.styled_lines import Row, Styled, as_text
from pml.screen.draw.styles import BOLD, DIM, HEADING, RED
from pml.screen.keystrokes import ALLOW, GRACE_S, Dropped, Escapes, Held, Strokes, Ticks

T = TypeVar("T")
_MAX_MESSAGE: Final = 4000
_AROUND: Final = 9  # rows of the box and of what stands around it


class Escapable(Screen[T]):
    """A screen that Escape closes, once it is known not to be the start of an arrow key."""

    def __init__(self, ticks: Ticks) -> None:
        super().__init__()
        self.ticks = ticks
        self._escapes = Escapes()

    def takes(self, event: Key) -> bool:
        """Take the key if it is an Escape or the rest of one; all others are for what is in it."""
        at = self.ticks.of(event.time)
        match self._escapes.press(event.key, at, is_bare=event.character == "\x1b"):
            case Held() as held:
                self.set_timer(held.for_s, partial(self._settle_escape, held))
            case "escape":
                self.leave()
            case str():
                return False
            case _:
                pass
        event.stop()
        event.prevent_default()
        return True

    def _settle_escape(self, held: Held) -> None:
        if self._escapes.settle(held):
            self.leave()

    def leave(self) -> None:
        raise NotImplementedError


class Dialog(Escapable[T | None], ModalScreen[T | None]):
    """A box with a title, something in it, and a line that says which keys it takes."""

    def __init__(self, ticks: Ticks, title: str, hint: str) -> None:
        super().__init__(ticks)
        self._title = title
        self._hint = hint
        self._opened_at = ticks.now()

    @property
    def is_meant(self) -> bool:
        """Whether it has been open for long enough to be read."""
        return self.ticks.now() - self._opened_at >= GRACE_S

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(as_text([(self._title, HEADING)]), markup=False, id="dialog-title")
            yield from self.body()
            yield Static("", markup=False, id="dialog-problem")
            yield Static(as_text([(self._hint, DIM)]), markup=False, id="dialog-hint")

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def complain(self, words: str) -> None:
        self.query_one("#dialog-problem", Static).update(as_text([(words, RED)]))

    def leave(self) -> None:
        self.dismiss(None)


def _ask_dialog(widget: Widget, event: Key) -> None:
    cast("Dialog[str]", widget.screen).takes(event)


class _Line(Input):
    def on_key(self, event: Key) -> None:
        _ask_dialog(self, event)


class _Editor(TextArea):
    def on_key(self, event: Key) -> None:
        _ask_dialog(self, event)


class Typing(Dialog[str]):
    """One line of text: a message, a search, or a key that is not shown."""

    def __init__(
        self, ticks: Ticks, title: str, hint: str, *, value: str = "", is_secret: bool = False
    ) -> None:
        super().__init__(ticks, title, hint)
        self._value = value
        self._is_secret = is_secret

    def body(self) -> ComposeResult:
        yield _Line(value=self._value, password=self._is_secret, max_length=_MAX_MESSAGE, compact=True)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self.is_meant:
            self.dismiss(event.value)
        else:
            self.complain("too fast to be meant: press Return again")


class Editing(Dialog[str]):
    """The arguments as JSON; `submit` decides with them and returns why it was refused, or None.

    It is left with the text as it then stands, or with None once it was sent.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "send", show=False)]

    def __init__(
        self,
        ticks: Ticks,
        tool: str,
        text: str,
        *,
        submit: Callable[[JsonObject, bool], Awaitable[str | None]],
    ) -> None:
        title = f"edit the arguments of {visible(tool)}"
        super().__init__(ticks, title, "Ctrl+S allows the call with these arguments · Esc goes back")
        self._text = text
        self._submit = submit
        self._objected: str | None = None

    def body(self) -> ComposeResult:
        yield _Editor(self._text, show_line_numbers=True, theme="css", id="editor")

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()

    async def action_send(self) -> None:
        text = self.query_one(TextArea).text
        if not self.is_meant:
            self.complain("too fast to be meant: press it again")
            return
        try:
            value = loads_object(text, what="it")
        except Invalid as exc:
            self.complain(visible(exc.message))
            return
        words = await self._submit(value, text == self._objected)
        if words is None:
            self.dismiss(None)
            return
        self._objected = text
        self.complain(words)

    def leave(self) -> None:
        self.dismiss(self.query_one(TextArea).text)


class Reading(Dialog[str]):
    """Lines to read. With `keys`, Return and those keys answer, once the end of the lines was in view."""

    def __init__(
        self, ticks: Ticks, title: str, hint: str, lines: Sequence[Styled], *, keys: str | None = None
    ) -> None:
        super().__init__(ticks, title, hint)
        self._lines = lines
        self._keys = keys
        self._strokes = Strokes()

    def body(self) -> ComposeResult:
        yield LinesPane(id="dialog-lines")

    @property
    def pane(self) -> LinesPane:
        return self.query_one(LinesPane)

    def on_mount(self) -> None:
        self.pane.show_lines(self._lines)

    def on_resize(self, _: Resize) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Be as tall as the lines are, as far as there is room."""
        self.pane.styles.height = max(1, min(len(self.pane.rows), self.size.height - _AROUND))

    def on_key(self, event: Key) -> None:
        if self.takes(event):
            return
        event.stop()
        event.prevent_default()
        match self._strokes.press(event.key, self.ticks.of(event.time)):
            case Held() as held:
                self.set_timer(held.for_s, partial(self._settle, held))
            case Dropped(why=why):
                self.complain(why or "")
            case key:
                self.complain("")
                self._act(key)

    def _settle(self, held: Held) -> None:
        if self._strokes.settle(held) and held.key in ALLOW:
            self._answer("enter")

    def _act(self, key: str) -> None:
        pane = self.pane
        match key:
            case "j" | "down":
                pane.scroll(1)
            case "k" | "up":
                pane.scroll(-1)
            case "space" | "pagedown":
                pane.page(1)
            case "pageup" | "b":
                pane.page(-1)
            case "home" | "end":
                pane.go(0 if key == "home" else len(pane.rows))
            case "q" | "question_mark" if self._keys is None:
                self.dismiss(None)
            case _ if self._keys is not None and key in self._keys:
                self._answer(key)
            case _:
                self.complain(f"{visible(key)} does nothing here")

    def _answer(self, key: str) -> None:
        if self._keys is None:
            self.dismiss(None)
        elif not self.is_meant:
            self.complain("too fast to be meant: press it again")
        elif not self.pane.was_read:
            self.complain("Scroll to the end first (space), then press again.")
        else:
            self.dismiss(key)


def item(title: Row, *below: Row) -> list[Styled]:
    """Return a bold line and what belongs to it, set in."""
    lines = [Styled(spans=title, gutter=(("• ", BOLD),))]
    return lines + [Styled(spans=row, gutter=(("  ", DIM),)) for row in below]
