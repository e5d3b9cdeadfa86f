"""The lines around the stream and the card: the head, the list's rows, the buttons, the keys."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from rich.style import Style

from pml.core.approvals.record import Approval, ApprovalId, State, Subject, state_word
from pml.core.cards.card import Card
from pml.core.cards.facts import span
from pml.core.own_tools import LAUNCH_TOOL
from pml.screen.draw.styled_lines import Row, fitted, shown, width_of
from pml.screen.draw.styles import (
    ALARM,
    BOLD,
    BUTTON_ALLOW,
    BUTTON_DENY,
    CYAN,
    DIM,
    GREEN,
    HEADING,
    PLAIN,
    RED,
    YELLOW,
)
from pml.screen.draw.words import what_became
from pml.screen.queue import Entry

TALL: Final = 3  # rows of an entry where there is room
_SOON_S: Final = 60
_URGENT_S: Final = 15
_KEYS: Final = (
    ("j/k", "move"),
    ("e", "edit"),
    ("m", "message"),
    ("a", "always"),
    ("/", "search"),
    ("h", "history"),
    ("?", "help"),
    ("q", "quit"),
)


def spread(left: Row, right: Row, width: int) -> Row:
    """Return one row with `right` at its right end, and as much of `left` as fits."""
    room = width - width_of(right)
    if room < 4:
        return fitted(left, width)
    start = fitted(left, room - 2)
    return (*start, (" " * (room - width_of(start)), PLAIN), *right)


def head(*, waiting: int, found: int, search: str, who: str, width: int) -> Row:
    told = "nothing waits" if not waiting else f"{waiting} waiting"
    left: Row = ((" PML inbox", HEADING), (f"   {told}", BOLD if waiting else DIM))
    if search:
        left = (*left, ("   search ", DIM), *shown(search, YELLOW), (f" finds {found}", DIM))
    return spread(left, ((f"{who} ", DIM),), width)


def time_left(entry: Entry, now: datetime) -> Row:
    seconds = (entry.record.expires_at - now).total_seconds()
    style = ALARM if seconds < _URGENT_S else YELLOW if seconds < _SOON_S else DIM
    return ((span(seconds), style),)


def entry_rows(
    entry: Entry,
    *,
    is_focused: bool,
    is_past: bool,
    now: datetime,
    width: int,
    is_tall: bool,
    held_s: float | None,
) -> list[Row]:
    """Return one entry of the list: what, by whom, how long; a stub where it waits no longer.

    `is_past`: it is looked up, and what it was tells more than who decided it. `held_s`: as long as its
    denial can be undone.
    """
    bar = ("▌ ", CYAN) if is_focused else ("  ", PLAIN)
    name = shown(entry.record.tool_name, _name_style(entry, is_focused=is_focused))
    right = time_left(entry, now) if entry.waits else _outcome(entry.record)
    if entry.waits and held_s is not None:
        right = _held(held_s)
    about = entry.glimpse if entry.waits or is_past else what_became(entry.record, now)
    if not is_tall:
        return [spread((bar, *name, (f"  {about}", DIM)), right, width)]
    return [
        spread((bar, *name), right, width),
        fitted((bar, (f"{entry.session_name} · {about}", DIM)), width),
        (),
    ]


def _held(seconds: float) -> Row:
    return (("denied ", RED), (f"{math.ceil(seconds)} s ", DIM), ("u", CYAN), (" undo", DIM))


def _name_style(entry: Entry, *, is_focused: bool) -> Style:
    if not entry.waits:
        return DIM
    return BOLD if is_focused else PLAIN


def _outcome(record: Approval) -> Row:
    decided = RED if record.status is State.DENIED else GREEN
    return ((state_word(record.status), DIM if record.decided_by is None else decided),)


def list_rows(
    entries: Sequence[Entry],
    *,
    focus: ApprovalId | None,
    is_past: bool = False,
    now: datetime,
    width: int,
    is_tall: bool,
    held: Callable[[ApprovalId], float | None] = lambda _: None,
) -> list[Row]:
    return [
        row
        for entry in entries
        for row in entry_rows(
            entry,
            is_focused=entry.record.id == focus,
            is_past=is_past,
            now=now,
            width=width,
            is_tall=is_tall,
            held_s=held(entry.record.id),
        )
    ]


def card_title(card: Card, entry: Entry, now: datetime, width: int, *, held_s: float | None = None) -> Row:
    """Return what the card is about, and how long there is to decide, or to undo that."""
    name = shown(card.tool if card.subject is Subject.TOOL_CALL else card.title, HEADING)
    if not entry.waits:
        return spread(name, shown(what_became(entry.record, now), DIM), width)
    if held_s is not None:
        return spread(name, _held(held_s), width)
    return spread(name, (*time_left(entry, now), (" left", DIM)), width)


def buttons(card: Card | None, *, is_seen: bool, remembers: bool, together: int, width: int) -> Row:
    """Return Deny, Allow all, Allow; what cannot be pressed yet is dim.

    `together` is how many of those that wait can be answered with others.
    """
    if card is None or card.status is not State.PENDING:
        return ()
    memory: Row = ()
    if card.missing:
        memory = (("  p ", CYAN), ("store the key", DIM))
    elif card.tool == LAUNCH_TOOL:
        memory = (("  t ", CYAN), ("tools", DIM), ("  w ", CYAN), ("who answers", DIM))
    elif card.remember is not None:
        memory = (("  s ", CYAN), ("☑" if remembers else "☐", BOLD), (" this session", DIM))
    deny = (" Esc ", CYAN), ("Deny", BUTTON_DENY if is_seen else DIM)
    is_alone = card.kind is not None
    every = (("   A ", CYAN), (f"Allow all {together}", PLAIN)) if together > 1 and not is_alone else ()
    allow = ("  ", PLAIN), (f" ⏎ {card.verb} ", BUTTON_ALLOW if is_seen else Style(dim=True, reverse=True))
    return spread((*deny, *every, *memory), allow, width)


def keys_line(width: int, *, can_edit: bool = True) -> Row:
    row: Row = ((" ", PLAIN),)
    for key, means in _KEYS:
        if key == "e" and not can_edit:
            continue
        row = (*row, (key, CYAN), (f" {means}  ", DIM))
    return fitted(row, width)
