"""What the dialogs say: the help, what "all" covers, what "always" writes, and what came of each."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pml.core.cards import Always, Card
from pml.core.text import visible_json
from pml.screen.deciding import Given
from pml.screen.dialogs import item
from pml.screen.lines import BLANK, Row, Styled, shown
from pml.screen.stream import Entry
from pml.screen.styles import BOLD, CYAN, DIM, GREEN, PLAIN, RED, YELLOW

_SHOWN: Final = 1000  # characters of an input in a batch; the rest is counted
_KEYS: Final = (
    ("Return", "allow the focused request"),
    ("Escape", "deny it"),
    ("m", "deny it with a message to the agent"),
    ("e", "edit the arguments, then allow; the edit is judged again"),
    ("s", "remember an allow for this session"),
    ("a", "allow it always: shows what would be written, and where"),
    ("A  Alt+Return", "allow all that are listed"),
    ("D  Alt+Escape", "deny all that are listed"),
    ("p", "store a key that a server needs"),
    ("", ""),
    ("j k  ↓ ↑", "next, previous request"),
    ("space b", "page down, up in the request (also PgDn PgUp)"),
    ("g G", "its start, its end (also Home End)"),
    ("Tab", "let the arrows move in the list, or in the request"),
    ("o", "open or close folded lines"),
    ("/", "search; an empty search shows all again"),
    ("h", "history: all that was ever asked"),
    ("q", "leave; what waits goes on waiting"),
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


def batch_lines(entries: Sequence[Entry], *, is_seen: Callable[[Entry], bool]) -> list[Styled]:
    """Each request that "all" would decide, and what it would do."""
    lines: list[Styled] = []
    for entry in entries:
        text = visible_json(entry.record.tool_input, indent=None)
        more = len(text) - _SHOWN
        cut = () if more <= 0 else ((f"… {more:,} more characters", YELLOW),)
        doubt = () if is_seen(entry) else (("  not seen whole", YELLOW),)
        title = (*shown(entry.record.tool_name, BOLD), (f"  {entry.session_name}", DIM), *doubt)
        lines += [*item(title, (*shown(text[:_SHOWN]), *cut)), BLANK]
    return lines


def report_lines(given: Iterable[tuple[Entry, Given]]) -> list[Styled]:
    """What came of each; one that was refused did not keep the others from being decided."""
    lines: list[Styled] = []
    for entry, each in given:
        mark = ("✓ ", GREEN) if each.is_done else ("✗ ", RED)
        lines.append(Styled(spans=shown(entry.record.tool_name, BOLD), gutter=(mark,)))
        lines.append(Styled(spans=((each.words, PLAIN),), gutter=(("  ", PLAIN),), by_words=True))
    return lines


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
        told = (f"{len(card.covers)} more that wait would be covered; c allows these with it too:", YELLOW)
        lines.append(Styled(spans=(told,), by_words=True))
        for other in card.covers:
            lines += item(shown(other.tool, BOLD), shown(other.sentence))
    return lines


def _always(always: Always) -> list[Styled]:
    rows: list[Row] = [(("adds  ", DIM), *shown(always.text, GREEN)), (("to    ", DIM), *shown(always.file))]
    if always.note is not None:
        rows.append(shown(always.note, YELLOW))
    return [Styled(spans=row, gutter=((" " * 8, DIM),), by_words=True) for row in rows]
