"""Tables as lines of text: columns as wide as they need, or wrapped by words to the width of a screen.

Nothing is ever cut. Where the screen is too narrow for all columns, the last has lines of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, chop_cells

GAP: Final = "  "
INDENT: Final = "    "
UNBROKEN: Final = 24  # a name, a version or an instant stays whole; longer words are paths and hashes
READABLE: Final = 24  # a last column that is narrower has lines of its own
SHORT: Final = 12  # so does a cell such as `1.2 MB`


def table_lines(rows: Sequence[Sequence[str]], *, width: int | None) -> Iterator[tuple[str, str]]:
    """Yield the lines with their styles, the first row as the head; `width` is that of the screen, if any."""
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths = natural if width is None else _fit(rows, natural, width)
    is_narrow = widths is not None and widths[-1] < min(natural[-1], READABLE)
    is_split = (widths is None or is_narrow) and len(natural) > 1
    if is_split and width is not None:
        widths = _fit([row[:-1] for row in rows], natural[:-1], width)
    for number, row in enumerate(rows):
        style = "" if number else "bold"
        cells = row[:-1] if is_split else row
        yield from ((style, line) for line in _row_lines(cells, widths or natural[: len(cells)]))
        if is_split and width is not None:
            room = max(width - len(INDENT), 1)
            yield from ((style, INDENT + line) for line in _wrap(row[-1], room))


def _fit(rows: Sequence[Sequence[str]], natural: Sequence[int], width: int) -> list[int] | None:
    """Return the widths of the columns, the widest narrowed first; None if words would have to be broken."""
    room = width - len(GAP) * (len(natural) - 1)
    words = [max(_longest_part(cell) for cell in column) for column in zip(*rows, strict=True)]
    least = [min(word, UNBROKEN) for word in words]
    for most in range(max(natural), 0, -1):
        widths = [max(min(size, most), low) for size, low in zip(natural, least, strict=True)]
        if sum(widths) <= room:
            return widths
    return None


def _row_lines(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, wrapped))):
        parts = [lines[number] if number < len(lines) else "" for lines in wrapped]
        padded = [part + " " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True)]
        yield GAP.join(padded).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words where that is possible."""
    lines = [""]
    if cell_len(text) <= width:
        return [text]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        pieces = chop_cells(word, width) or [""]
        lines = [*lines, *pieces] if lines[-1] else pieces if len(lines) == 1 else [*lines[:-1], *pieces]
    return lines


def _longest_part(text: str) -> int:
    if cell_len(text) <= SHORT:
        return cell_len(text)
    return max(cell_len(word) for word in text.split(" "))
