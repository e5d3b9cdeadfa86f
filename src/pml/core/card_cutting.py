"""A card shortened for a page of many: the first lines of each part, and how many more there are."""

from collections.abc import Sequence
from typing import Final

import msgspec

from pml.core.cards import Arguments, Block, Card, Code, Command, Diff, Facts, Line

SHORT_LINES: Final = 200
SHORT_CHARS: Final = 16 * 1024


def shortened(full: Card) -> Card:
    """Return the card with as much of each part as a page has room for, `cut` where anything is left out."""
    short = msgspec.structs.replace(
        full,
        blocks=tuple(map(_short, full.blocks)),
        input=full.input if _is_small(full.input) else None,
        schema=full.schema if _is_small(full.schema) else None,
        always=full.always if _is_small(full.always) else None,
        always_exactly=full.always_exactly if _is_small(full.always_exactly) else None,
    )
    return short if short == full else msgspec.structs.replace(short, cut=True)


def _is_small(value: object) -> bool:
    return value is None or len(msgspec.json.encode(value)) <= SHORT_CHARS


def _short(block: Block) -> Block:
    match block:
        case Facts():
            return _short_facts(block)
        case Diff():
            kept, more = _fit([each.line for each in block.lines])
            lines = tuple(
                msgspec.structs.replace(each, line=line)
                for each, line in zip(block.lines[: len(kept)], kept, strict=True)
            )
            return msgspec.structs.replace(block, lines=lines, more=block.more + more)
        case Arguments():
            kept, more = _fit([(line,) for line in block.lines])
            told = tuple("".join(map(str, line)) for line in kept)
            return msgspec.structs.replace(block, lines=told, more=block.more + more)
        case Command() | Code():
            kept, more = _fit(block.lines)
            return msgspec.structs.replace(block, lines=tuple(kept), more=block.more + more)


def _short_facts(block: Facts) -> Facts:
    rows = tuple(
        row if len(row.value) <= SHORT_CHARS else msgspec.structs.replace(row, value=row.value[:SHORT_CHARS])
        for row in block.rows
    )
    return Facts(rows=rows)


def _fit(lines: Sequence[Line]) -> tuple[list[Line], int]:
    """Return the lines that fit, and how many do not; of one that is too long the start is kept."""
    kept: list[Line] = []
    whole, room = 0, SHORT_CHARS
    for line in lines[:SHORT_LINES]:
        size = sum(len(piece) if isinstance(piece, str) else 1 for piece in line)
        if size > room:
            kept.append(_start(line, room))
            break
        kept.append(line)
        whole, room = whole + 1, room - size
    return kept, len(lines) - whole


def _start(line: Line, room: int) -> Line:
    kept: list[str | int] = []
    for piece in line:
        if room <= 0:
            break
        kept.append(piece[:room] if isinstance(piece, str) else piece)
        room -= len(piece) if isinstance(piece, str) else 1
    return tuple(kept)
