"""Keys that a person meant: pasted text, a key held down, and an arrow that came in parts decide nothing.

It is told every key with its instant. A key that would decide is held back for a moment, and applies
only if nothing came right before or after it. Knows no card and no screen.
"""

import contextlib
import importlib
import time
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

TOGETHER_S: Final = 0.06  # people type slower: keys closer than this are pasted, or one held down
REPEAT_S: Final = 0.5  # the same key again this soon may be one that is still held down
AGAIN_S: Final = 0.25  # one that is still held down comes once more within this, however slow its rate
ESCAPE_S: Final = 0.4  # the rest of an arrow key may be this late over a slow link
GRACE_S: Final = 0.5  # a key pressed this soon after the card changed by itself was meant for the one before
_REST_S: Final = 2.0  # what is left of a broken sequence comes within this

ALLOW: Final = frozenset({"enter", "ctrl+enter", "super+enter", "ctrl+j"})
DENY: Final = frozenset({"escape"})
DECIDING: Final = ALLOW | DENY
_SEVERAL: Final = "several keys at once: nothing was decided"
_INTRODUCERS: Final = frozenset({"left_square_bracket", "O"})  # what follows ESC in a terminal's sequences


class Ticks:
    """Instants of keys, as the terminal's driver takes them; a test sets its own."""

    def now(self) -> float:
        return time.monotonic()

    def of(self, pressed_at: float) -> float:
        return pressed_at


class _Alt(Enum):
    ENTER = "alt+enter"


def know_alt_enter() -> None:
    """Let Alt+Return be told from Return where the terminal sends ESC and CR for it."""
    with contextlib.suppress(ImportError, AttributeError):  # then `A` still serves
        sequences = importlib.import_module("textual._ansi_sequences").ANSI_SEQUENCES_KEYS
        cast("dict[str, object]", sequences).setdefault("\x1b\r", (_Alt.ENTER,))


@dataclass(frozen=True, kw_only=True)
class Held:
    """A key that decides, unless another one comes within `for_s`."""

    key: str
    for_s: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A key that does nothing, and why, if a person should know."""

    why: str | None = None


class Strokes:
    """What each key means, in the light of those around it."""

    def __init__(self) -> None:
        self._n = 0
        self._last = ("", float("-inf"))
        self.held: Held | None = None
        self._in_sequence = False
        self._may_repeat = False

    def come_back(self) -> None:
        """Be told that others took the keys until now: the last of them may still be held down."""
        self._may_repeat = True

    def press(self, key: str, at: float, *, is_bare: bool = False) -> str | Held | Dropped:
        """Return the key to act on now, or one that is held back, or nothing.

        `is_bare`: an Escape that the terminal sent as the single byte which begins every sequence.
        """
        self._n += 1
        (last, last_at), self._last = self._last, (key, at)
        held, self.held = self.held, None
        may_repeat, self._may_repeat = self._may_repeat or key == last, False
        quiet_s = at - last_at
        if held is not None and held.key == "escape" and held.for_s == ESCAPE_S:
            if key == "escape":
                return "alt+escape"
            self._in_sequence = key in _INTRODUCERS
            return Dropped(why=None if self._in_sequence else _SEVERAL)
        if self._in_sequence and quiet_s < _REST_S:
            is_part = key not in DECIDING
            self._in_sequence = is_part and not _ends_sequence(key)
            return Dropped(why=None if is_part else _SEVERAL)
        self._in_sequence = key in _INTRODUCERS
        if self._in_sequence:
            return Dropped()
        if held is not None:
            return Dropped(why=_SEVERAL)
        if key not in DECIDING:
            return key
        if quiet_s < TOGETHER_S or (key == last and quiet_s < REPEAT_S):
            return Dropped(why="too fast to be meant: nothing was decided, press it again")
        for_s = ESCAPE_S if is_bare else AGAIN_S if may_repeat else TOGETHER_S
        self.held = Held(key=key, for_s=for_s, n=self._n)
        return self.held

    def settle(self, held: Held) -> bool:
        """Return whether the held key applies: nothing came while it was held."""
        counts = self.held == held
        if counts:
            self.held = None
        return counts


class Escapes:
    """Escape where all other keys are for a text: it closes, unless it was the start of an arrow key."""

    def __init__(self) -> None:
        self._n = 0
        self._last_at = float("-inf")
        self._in_sequence = False
        self.held: Held | None = None

    def press(self, key: str, at: float, *, is_bare: bool = False) -> str | Held | Dropped:
        """Return the key, which is for the text unless it is `escape`, or one held back, or nothing."""
        self._n += 1
        held, self.held = self.held, None
        quiet_s, self._last_at = at - self._last_at, at
        if self._in_sequence and quiet_s < _REST_S:
            self._in_sequence = not _ends_sequence(key)
            return Dropped()
        self._in_sequence = held is not None and key in _INTRODUCERS
        if held is not None:
            return Dropped() if self._in_sequence else "escape"
        if key != "escape" or not is_bare:
            return key
        self.held = Held(key=key, for_s=ESCAPE_S, n=self._n)
        return self.held

    def settle(self, held: Held) -> bool:
        """Return whether the held Escape applies: nothing came while it was held."""
        return self.held == held


def _ends_sequence(key: str) -> bool:
    return (len(key) == 1 and key.isalpha()) or key == "tilde"
