"""Many answers at once: exactly what they cover, what is left out of them, and what came of each.

What is listed here to its last character counts as seen, since the list must be read to its end. What is not,
and was not read by itself either, is never allowed with the others.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from pml.core.approvals import Approval, ApprovalId, Subject
from pml.core.cards import Arguments, Block, Card, Code, Command, Diff, Facts
from pml.core.text import visible_json
from pml.screen.deciding import Given
from pml.screen.dialogs import item
from pml.screen.lines import BLANK, Row, Span, Styled, shown
from pml.screen.stream import Entry
from pml.screen.styles import BOLD, CYAN, DIM, GREEN, PLAIN, RED, YELLOW
from pml.service.cards import cards
from pml.service.desk import Desk

_SHOWN: Final = 1000  # characters of an input; the rest is counted
_PAGE: Final = 100  # cards that are made at a time, as for a page of many
_BREAK: Final = r"\n"  # a line break, as JSON writes it
_PARTS: Final = re.compile(r"[^\\]+|\\.")  # an escape is a part of its own
_MARK: Final[Span] = (" ⏎ ", CYAN)


async def find_listed(desk: Desk, entries: Sequence[Entry]) -> frozenset[ApprovalId]:
    """Return which of them the list tells to their last character, as their cards are now."""
    short = [entry.record for entry in entries if len(_input(entry)) <= _SHOWN]
    found: list[Card] = []
    for at in range(0, len(short), _PAGE):
        found += await _cards(desk, short[at : at + _PAGE])
    return frozenset(card.id for card in found if _is_listed_whole(card))


async def _cards(desk: Desk, records: Sequence[Approval]) -> list[Card]:
    """Return their cards, but for those that cannot be made: what cannot be shown is not listed whole."""
    try:
        return await cards(desk, records)
    except Exception:
        if len(records) == 1:
            return []
        return [card for record in records for card in await _cards(desk, [record])]


def _is_listed_whole(card: Card) -> bool:
    """Tell whether a card would tell nothing more: not where a link leads, not a folder, code or warning."""
    is_plain = card.subject is Subject.TOOL_CALL and card.run_id is None and not card.cut
    return is_plain and not card.warnings and all(_repeats(block, card) for block in card.blocks)


def _repeats(block: Block, card: Card) -> bool:
    """Tell whether the part has only what stands in the arguments, or in the list beside them."""
    match block:
        case Arguments() | Code():
            return True
        case Command():
            return block.cwd == card.workspace
        case Diff() | Facts():
            return False


def _input(entry: Entry) -> str:
    return visible_json(entry.record.tool_input, indent=None)


def batch_lines(
    entries: Sequence[Entry], *, left_out: Sequence[Entry], is_known: Callable[[Entry], bool]
) -> list[Styled]:
    """Each request that "all" would decide and what it would do, below those that are left out."""
    lines: list[Styled] = []
    if left_out:
        which = "it" if len(left_out) == 1 else "each"
        told = f"{len(left_out)} left out: open {which} to decide"
        lines.append(Styled(spans=((told, YELLOW),), by_words=True))
        lines += [Styled(spans=_title(entry), gutter=(("✗ ", YELLOW),)) for entry in left_out]
        lines.append(BLANK)
    for entry in entries:
        is_call = entry.record.subject is Subject.TOOL_CALL
        below: Row = (*_listed(_input(entry)),) if is_call else ((entry.glimpse, PLAIN),)
        doubt: Row = () if is_known(entry) else (("  not seen whole", YELLOW),)
        lines += [*item(_title(entry, doubt), below), BLANK]
    return lines


def _title(entry: Entry, doubt: Row = ()) -> Row:
    where = f"  {entry.session_name}  in {entry.workspace}"
    return (*shown(entry.record.tool_name, BOLD), *doubt, (where, DIM))


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
