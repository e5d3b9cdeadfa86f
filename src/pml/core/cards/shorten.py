"""A card shortened for a page of many: the first lines of each part, and how many more there are.

Every text of a shortened card is bounded, whoever wrote it; so is their number.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from pml.core.approvals.bounds import input_bytes
from pml.core.approvals.reasons import MatchedRule
from pml.core.cards.card import Arguments, Block, Card, Code, Command, Diff, Fact, Facts, Line, Outcome
from pml.core.values import Json, JsonObject

SHORT_LINES: Final = 200
SHORT_CHARS: Final = 16 * 1024  # of one part
SHORT_PARTS: Final = 4 * SHORT_CHARS  # of all parts
SHORT_TEXT: Final = 1024  # of what stands around the parts
SHORT_COUNT: Final = 20  # warnings, variables, facts and parts


def brief(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters, the last an ellipsis where it is cut."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def short_input(arguments: JsonObject) -> JsonObject:
    """Return arguments that are quick to lay out: themselves, or with long texts and lists cut."""
    return arguments if input_bytes(arguments) <= SHORT_PARTS else _Cutter().object(arguments)


class _Cutter:
    """Cuts each text, and leaves out what comes when there is no room left for all of them."""

    def __init__(self) -> None:
        self._room = SHORT_PARTS

    def object(self, given: JsonObject) -> JsonObject:
        return {key: self._value(value) for key, value in given.items() if self._takes(len(key))}

    def _value(self, value: Json) -> Json:
        match value:
            case str():
                text = value[: SHORT_CHARS + 1]  # still too long, so that a part of it says that it is cut
                self._takes(len(text))
                return text
            case dict():
                return self.object(value)
            case list():
                return [self._value(each) for each in value if self._takes(1)]
            case _:
                return value

    def _takes(self, size: int) -> bool:
        has_room = self._room > 0
        self._room -= size
        return has_room


def shortened(full: Card) -> Card:
    """Return the card with as much of each part as a page has room for, `cut` where anything is left out."""
    short = msgspec.structs.replace(
        full,
        title=brief(full.title, SHORT_TEXT),
        sentence=brief(full.sentence, SHORT_TEXT),
        warnings=_short_texts(full.warnings),
        blocks=tuple(_short_blocks(full.blocks)),
        why=brief(full.why, SHORT_TEXT),
        rule=full.rule and _short_rule(full.rule),
        session_name=brief(full.session_name, SHORT_TEXT),
        lineage=tuple(
            msgspec.structs.replace(each, name=brief(each.name, SHORT_TEXT)) for each in full.lineage
        ),
        workspace=brief(full.workspace, SHORT_TEXT),
        missing=_short_texts(full.missing),
        outcome=full.outcome and _short_outcome(full.outcome),
        input=full.input if _is_small(full.input) else None,
        schema=full.schema if _is_small(full.schema) else None,
        always=full.always if _is_small(full.always) else None,
        always_exactly=full.always_exactly if _is_small(full.always_exactly) else None,
    )
    return short if short == full else msgspec.structs.replace(short, cut=True)


def _is_small(value: object) -> bool:
    return value is None or len(msgspec.json.encode(value)) <= SHORT_CHARS


def _short_texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(brief(text, SHORT_TEXT) for text in texts[:SHORT_COUNT])


def _short_rule(rule: MatchedRule) -> MatchedRule:
    file = rule.file and brief(rule.file, SHORT_TEXT)
    return msgspec.structs.replace(rule, entry=brief(rule.entry, SHORT_TEXT), file=file)


def _short_outcome(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(
        outcome,
        text=brief(outcome.text, SHORT_TEXT),
        message=outcome.message and brief(outcome.message, SHORT_TEXT),
        reason=outcome.reason and brief(outcome.reason, SHORT_TEXT),
    )


def _short_blocks(blocks: Sequence[Block]) -> Iterator[Block]:
    room = SHORT_PARTS
    for block in blocks[:SHORT_COUNT]:
        short = _short(block, min(room, SHORT_CHARS))
        room -= _size(short)
        yield short


def _size(block: Block) -> int:
    match block:
        case Facts():
            return sum(len(row.value) for row in block.rows)
        case Diff():
            return sum(_line_size(each.line) for each in block.lines)
        case Arguments():
            return sum(map(len, block.lines))
        case Command() | Code():
            return sum(map(_line_size, block.lines))


def _short(block: Block, room: int) -> Block:
    match block:
        case Facts():
            return _short_facts(block, room)
        case Diff():
            kept, more = _fit([each.line for each in block.lines], room)
            lines = tuple(
                msgspec.structs.replace(each, line=line)
                for each, line in zip(block.lines[: len(kept)], kept, strict=True)
            )
            return msgspec.structs.replace(
                block,
                title=brief(block.title, SHORT_TEXT),
                note=block.note and brief(block.note, SHORT_TEXT),
                lines=lines,
                more=block.more + more,
            )
        case Arguments():
            kept, more = _fit([(line,) for line in block.lines], room)
            told = tuple("".join(map(str, line)) for line in kept)
            return msgspec.structs.replace(block, lines=told, more=block.more + more)
        case Command():
            kept, more = _fit(block.lines, room)
            return msgspec.structs.replace(
                block,
                lines=tuple(kept),
                cwd=brief(block.cwd, SHORT_TEXT),
                says=block.says and brief(block.says, SHORT_TEXT),
                more=block.more + more,
            )
        case Code():
            kept, more = _fit(block.lines, room)
            title = brief(block.title, SHORT_TEXT)
            return msgspec.structs.replace(block, title=title, lines=tuple(kept), more=block.more + more)


def _short_facts(block: Facts, room: int) -> Facts:
    rows: list[Fact] = []
    for row in block.rows[:SHORT_COUNT]:
        value = brief(row.value, max(room, 1))
        rows.append(msgspec.structs.replace(row, value=value))
        room -= len(value)
    return Facts(rows=tuple(rows))


def _fit(lines: Sequence[Line], room: int) -> tuple[list[Line], int]:
    """Return the lines that fit, and how many do not; of one that is too long the start is kept."""
    kept: list[Line] = []
    whole = 0
    for line in lines[:SHORT_LINES]:
        size = _line_size(line)
        if size > room:
            kept.append(_start(line, room))
            break
        kept.append(line)
        whole, room = whole + 1, room - size
    return kept, len(lines) - whole


def _line_size(line: Line) -> int:
    return sum(len(piece) if isinstance(piece, str) else 1 for piece in line)


def _start(line: Line, room: int) -> Line:
    kept: list[str | int] = []
    for piece in line:
        if room <= 0:
            break
        kept.append(piece[:room] if isinstance(piece, str) else piece)
        room -= len(piece) if isinstance(piece, str) else 1
    return tuple(kept)
