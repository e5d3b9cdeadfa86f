"""Many answers at once: exactly what they cover, what is left out of them, and what came of each.

What is listed here to its last character counts as seen, since the list must be read to its end. What is not,
and was not read by itself either, is never allowed with the others.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from pml.core.approvals import Subject
from pml.core.card_blocks import Asked
from pml.core.card_words import warnings_of
from pml.core.text import count_hidden, visible_json
from pml.screen.deciding import Given
from pml.screen.dialogs import item
from pml.screen.lines import BLANK, Row, Span, Styled, shown
from pml.screen.stream import Entry
from pml.screen.styles import BOLD, CYAN, DIM, GREEN, PLAIN, RED, YELLOW

_SHOWN: Final = 1000  # characters of an input; the rest is counted
_BREAK: Final = r"\n"  # a line break, as JSON writes it
_PARTS: Final = re.compile(r"[^\\]+|\\.")  # an escape is a part of its own
_MARK: Final[Span] = (" ⏎ ", CYAN)


def split(
    entries: Iterable[Entry], *, is_seen: Callable[[Entry], bool]
) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """Return what may be allowed at once, and what must be read by itself first."""
    covered: list[Entry] = []
    left_out: list[Entry] = []
    for entry in entries:
        (covered if is_seen(entry) or _is_listed_whole(entry) else left_out).append(entry)
    return covered, left_out


def _is_listed_whole(entry: Entry) -> bool:
    """Tell whether the list has all that its card would: a folder, code or a warning is only there."""
    record = entry.record
    if record.subject is not Subject.TOOL_CALL or record.cwd is not None or record.run_id is not None:
        return False
    asked = Asked(record=record, cwd=entry.workspace, workspace=entry.workspace)
    warned = warnings_of(asked, hidden=count_hidden(record.tool_input))
    return len(_input(entry)) <= _SHOWN and not warned


def _input(entry: Entry) -> str:
    return visible_json(entry.record.tool_input, indent=None)


def batch_lines(
    entries: Sequence[Entry], *, left_out: Sequence[Entry], is_seen: Callable[[Entry], bool]
) -> list[Styled]:
    """Each request that "all" would decide and what it would do, below those that are left out."""
    lines: list[Styled] = []
    if left_out:
        told = f"{len(left_out)} not seen whole, and not among these: read each by itself"
        lines.append(Styled(spans=((told, YELLOW),), by_words=True))
        lines += [Styled(spans=_title(entry), gutter=(("✗ ", YELLOW),)) for entry in left_out]
        lines.append(BLANK)
    for entry in entries:
        below: Row = ((entry.glimpse, PLAIN), (f"  in {entry.workspace}", DIM))
        if entry.record.subject is Subject.TOOL_CALL:
            below = (*_listed(_input(entry)),)
        doubt: Row = () if is_seen(entry) or _is_listed_whole(entry) else (("  not seen whole", YELLOW),)
        lines += [*item((*_title(entry), *doubt), below), BLANK]
    return lines


def _title(entry: Entry) -> Row:
    return (*shown(entry.record.tool_name, BOLD), (f"  {entry.session_name}", DIM))


def _listed(text: str) -> Iterator[Span]:
    """Yield the start of an input, its line breaks marked, and how much follows."""
    end = 0
    for part in _PARTS.finditer(text[:_SHOWN]):
        yield from (_MARK,) if part[0] == _BREAK else shown(part[0])
        end = part.end()
    rest = text[end:]
    if rest:
        breaks = _PARTS.findall(rest).count(_BREAK)
        count, what = (breaks, "lines") if breaks else (len(rest), "characters")
        yield f"… {count:,} more {what}", YELLOW


def report_lines(given: Iterable[tuple[Entry, Given]]) -> list[Styled]:
    """What came of each; one that was refused did not keep the others from being decided."""
    lines: list[Styled] = []
    for entry, each in given:
        mark = ("✓ ", GREEN) if each.is_done else ("✗ ", RED)
        lines.append(Styled(spans=shown(entry.record.tool_name, BOLD), gutter=(mark,)))
        lines.append(Styled(spans=((each.words, PLAIN),), gutter=(("  ", PLAIN),), by_words=True))
    return lines
