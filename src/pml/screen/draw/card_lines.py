"""A `Card` as styled lines: what would happen, by whom, why, the whole input, and what an answer would do.

Every text goes through `shown`. A long block is folded until it is opened: a card with a closed fold has not
been seen whole. How wide the screen is, and what was scrolled into view, is not known here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never

from rich.style import Style

from pml.core.approvals.record import State, instant
from pml.core.cards.card import Arguments, Block, Card, Code, Command, Diff, DiffLine, Facts, Mark
from pml.screen.draw.styled_lines import BLANK, Row, Styled, shown, shown_line
from pml.screen.draw.styles import (
    ALARM,
    BLUE,
    BOLD,
    CYAN,
    DIM,
    FRAME,
    GREEN,
    HEADING,
    MAGENTA,
    PLAIN,
    RED,
    YELLOW,
)

FOLD_AFTER: Final = 60  # lines of a block that are shown at once
_KEPT: Final = 40  # of a folded one
_LABEL: Final = 12
_JSON: Final = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=:))|(?P<text>"(?:[^"\\]|\\.)*")'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)|[^\"\d\-tfn]+|."
)
_JSON_STYLES: Final = {"key": CYAN, "text": GREEN, "number": MAGENTA, "word": YELLOW}
_SIGNS: Final[dict[Mark, tuple[str, Style]]] = {
    Mark.SAME: (" ", PLAIN),
    Mark.ADDED: ("+", GREEN),
    Mark.REMOVED: ("-", RED),
    Mark.GAP: ("⋯", DIM),
}


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A card's lines: `asked` is all that must be seen before deciding, `around` is to look things up in.

    `folded` counts the lines that are not among them, `until_fold` those before the first fold.
    """

    asked: tuple[Styled, ...] = ()
    around: tuple[Styled, ...] = ()
    folded: int = 0
    until_fold: int = 0


def draw(card: Card, *, is_open: bool, is_raw: bool = False) -> Drawn:
    """Return the whole card, with long blocks folded unless `is_open`, its raw arguments if `is_raw`."""
    lines: list[Styled] = [*_opening(card)]
    folded, until_fold = 0, None
    raw = [block for block in card.blocks if isinstance(block, Arguments) and block.raw]
    for block in (each for each in card.blocks if each not in raw):
        drawn = [*_block(block)]
        left_out = len(drawn) - _KEPT if len(drawn) > FOLD_AFTER and not is_open else 0
        lines += [BLANK, *(drawn[:-left_out] if left_out else drawn)]
        if left_out:
            folded += left_out
            until_fold = len(lines) if until_fold is None else until_fold
            lines.append(Styled(spans=((f"▸ {left_out:,} more lines; o opens them", HEADING),)))
    looked_up = [BLANK, *_raw(raw, is_raw=is_raw)] if raw else []
    around = [*looked_up, BLANK, *(_answers(card) if card.status is State.PENDING else ()), *_about(card)]
    return Drawn(
        asked=tuple(lines),
        around=tuple(around),
        folded=folded,
        until_fold=len(lines) if until_fold is None else until_fold,
    )


def _raw(blocks: Sequence[Block], *, is_raw: bool) -> Iterator[Styled]:
    if is_raw:
        for block in blocks:
            yield from _block(block)
    else:
        yield Styled(spans=(("▸ raw arguments; r shows them", DIM),))


def _prose(text: str, style: Style = PLAIN, *, mark: Row = ()) -> Iterator[Styled]:
    for number, line in enumerate(text.split("\n")):
        gutter = mark if number == 0 or not mark else ((" " * sum(len(part) for part, _ in mark), PLAIN),)
        yield Styled(spans=shown(line, style), gutter=gutter, by_words=True)


def _fact(name: str, value: str, style: Style = PLAIN) -> Iterator[Styled]:
    label = shown(f"{name:<{_LABEL - 1}} ", DIM)
    yield from _prose(value, style, mark=label)


def _heading(title: str, *, note: str | None = None) -> Styled:
    told = () if note is None else shown(f"  {note}", YELLOW)
    return Styled(spans=(("▎ ", HEADING), *shown(title, HEADING), *told), by_words=True)


def _opening(card: Card) -> Iterator[Styled]:
    if card.outcome is not None:
        yield from _outcome(card)
        yield BLANK
    if card.kind is not None:
        yield Styled(spans=((f"▎ {card.kind}", FRAME), (" · answered separately", DIM)))
    sentence = f"“{card.sentence}”" if card.quoted else card.sentence
    yield from _prose(sentence, BOLD)
    if card.quoted:
        yield Styled(spans=(("says the server", DIM),))
    if card.server is not None:
        yield from _prose(card.server)
    for warning in card.warnings:
        yield from _prose(warning, ALARM, mark=(("! ", ALARM),))
    yield BLANK
    yield from _fact("asked by", _lineage(card))
    yield from _fact("workspace", card.workspace)
    yield from _fact("why", card.why)


def _lineage(card: Card) -> str:
    names = [f"{each.name} (ended)" if each.has_ended else each.name for each in card.lineage]
    return " › ".join(names) or card.session_name


def _outcome(card: Card) -> Iterator[Styled]:
    outcome = card.outcome
    if outcome is None:
        return
    refused = card.status in (State.DENIED, State.EXPIRED, State.CANCELLED, State.FAILED)
    text = outcome.text.replace(instant(outcome.at), _local(outcome.at))
    yield from _prose(text, RED if refused else GREEN, mark=((("✗ ", RED),) if refused else (("✓ ", GREEN),)))
    for name, value in (("message", outcome.message), ("reason", outcome.reason)):
        if value is not None:
            yield from _fact(name, value)


def _local(at: datetime) -> str:
    """Return an instant as the clock on this machine's wall shows it."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _block(block: Block) -> Iterator[Styled]:
    match block:
        case Facts():
            for row in block.rows:
                yield from _fact(row.name, row.value, ALARM if row.alarming else PLAIN)
        case Diff():
            yield _heading(block.title, note=block.note)
            yield from _diff(block.lines)
            yield from _more(block.more)
        case Command():
            yield _heading("command", note=None if block.says is None else f"“{block.says}”")
            for number, line in enumerate(block.lines):
                gutter = ("$ " if number == 0 else "  ", DIM)
                yield Styled(spans=shown_line(line, BOLD), gutter=(gutter,))
            yield from _fact("in", block.cwd)
            yield from _more(block.more)
        case Code():
            yield _heading(block.title)
            digits = len(str(len(block.lines)))
            for number, line in enumerate(block.lines, 1):
                yield Styled(spans=shown_line(line), gutter=((f"{number:>{digits}}  ", DIM),))
            yield from _more(block.more)
        case Arguments():
            yield _heading(block.title)
            for text in block.lines:
                yield Styled(spans=tuple(_coloured(text)), gutter=(("  ", PLAIN),))
            yield from _more(block.more)
        case _:
            assert_never(block)


def _more(count: int) -> Iterator[Styled]:
    if count:
        yield Styled(spans=((f"⋯ {count:,} more lines", ALARM),))


def _diff(lines: Sequence[DiffLine]) -> Iterator[Styled]:
    digits = max((len(str(number)) for line in lines for number in (line.old, line.new) if number), default=1)
    for line in lines:
        sign, style = _SIGNS[line.mark]
        old, new = ("" if number is None else str(number) for number in (line.old, line.new))
        numbers = (f"{old:>{digits}} {new:>{digits}} ", DIM)
        yield Styled(spans=shown_line(line.line, style), gutter=(numbers, (f"{sign} ", style)))


def _coloured(text: str) -> Iterator[tuple[str, Style]]:
    for found in _JSON.finditer(text):
        yield from shown(found[0], _JSON_STYLES.get(found.lastgroup or "", PLAIN))


def _answers(card: Card) -> Iterator[Styled]:
    """What each answer would do besides letting this one call run."""
    for name in card.missing:
        yield from _key("p", f"store {name}, or run `pml secrets set {name}`")
    if card.remember is not None:
        yield from _key("s", f"for this session: {card.remember}")
    if card.always is not None:
        yield from _key("a", f"always: adds {card.always.text} to {card.always.file}")
    for other in card.covers:
        yield from _fact("", f"also covers {other.tool}, which waits", BLUE)


def _key(key: str, means: str) -> Iterator[Styled]:
    yield from _prose(means, mark=((f"{key:<{_LABEL}}", CYAN),))


def _about(card: Card) -> Iterator[Styled]:
    rule = card.rule
    if rule is not None and rule.file is not None:
        place = rule.file if rule.line is None else f"{rule.file}:{rule.line}"
        yield from _fact("rule", f"{rule.entry}  in {place}", DIM)
    yield from _fact("asked", _local(card.created_at), DIM)
    yield from _fact("may allow", " or ".join(card.may_allow), DIM)
    yield from _fact("id", card.id, DIM)
    yield from _fact("sha256", card.digest.removeprefix("sha256:"), DIM)
