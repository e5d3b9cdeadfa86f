"""Texts of the dialogs: the help, and what "always" writes."""

from typing import Final

from pml.core.cards.card import Always, Card
from pml.screen.answers.dialogs import item
from pml.screen.draw.styled_lines import BLANK, Row, Styled, shown
from pml.screen.draw.styles import BOLD, CYAN, DIM, GREEN, PLAIN, YELLOW

_KEYS: Final = (
    ("Return", "allow the focused request"),
    ("Escape", "deny it"),
    ("m", "deny it with a message to the agent"),
    ("u", "undo: a denial for four seconds, a remembered answer until the next one"),
    ("e", "edit the arguments, then allow; the edit is judged again"),
    ("s", "remember an allow for this session"),
    ("a", "allow it always: shows what would be written, and where"),
    ("A  Alt+Return", "allow all that are listed"),
    ("D  Alt+Escape", "deny all that are listed"),
    ("p", "store a key that a server needs"),
    ("t w", "start of an agent: which tools it may use, who may answer for it"),
    ("", ""),
    ("j k  ↓ ↑", "next, previous request"),
    ("space b", "page down, up in the request (also PgDn PgUp)"),
    ("g G", "its start, its end (also Home End)"),
    ("Tab", "let the arrows move in the list, or in the request"),
    ("o r", "open or close folded lines, the raw arguments"),
    ("/", "search; an empty search shows all again"),
    ("h", "history: all that was ever asked"),
    ("q", "leave; what waits keeps waiting, a denial is sent at once"),
)
_RULES: Final = (
    "A key decides only what has the focus and was seen to its end. A key that comes right after the "
    "request changed, several keys at once, and pasted text decide nothing."
)


def help_lines() -> list[Styled]:
    lines = [
        Styled(spans=((means, PLAIN),), gutter=((f"{key:<15}", CYAN),), by_words=True) for key, means in _KEYS
    ]
    return [*lines, BLANK, Styled(spans=((_RULES, DIM),), by_words=True)]


def always_lines(card: Card) -> list[Styled]:
    """The exact entries, their file, and what else they would let run."""
    lines: list[Styled] = []
    for key, title, always in (
        ("Return", "always", card.always),
        ("x", "always, with exactly these arguments", card.always_exactly),
    ):
        if always is not None:
            lines += [Styled(spans=((title, BOLD),), gutter=((f"{key:<8}", CYAN),)), *_always(always), BLANK]
    if card.covers:
        requests = "1 waiting request" if len(card.covers) == 1 else f"{len(card.covers)} waiting requests"
        told = (f"c also allows {requests} that this covers:", YELLOW)
        lines.append(Styled(spans=(told,), by_words=True))
        for other in card.covers:
            lines += item(shown(other.tool, BOLD), shown(other.sentence))
    return lines


def _always(always: Always) -> list[Styled]:
    rows: list[Row] = [(("adds  ", DIM), *shown(always.text, GREEN)), (("to    ", DIM), *shown(always.file))]
    if always.note is not None:
        rows.append(shown(always.note, YELLOW))
    return [Styled(spans=row, gutter=((" " * 8, DIM),), by_words=True) for row in rows]
