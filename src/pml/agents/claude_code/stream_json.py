"""The `stream-json` that Claude Code prints, read as news of the run: what it said and used, turns and cost.

Lines that are not JSON, unknown, or too long are passed over: a later version of the client may print what it
likes. Knows no process; text is the client's, and only what is put together here is made visible.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pml.core.sessions.agent import MessageKind
from pml.core.text import visible, visible_json
from pml.core.values import Json

MAX_LINE: Final = 16 * 1024 * 1024  # a picture that a tool returned is some megabytes
MAX_USE: Final = 200  # characters of a tool's use: its question has all of it
_LARGEST: Final = 1e12  # of a number that makes sense
_MAIN: Final = ("command", "file_path", "path", "notebook_path", "url", "pattern", "query", "prompt", "skill")


@dataclass(frozen=True, kw_only=True)
class Said:
    """The agent said or used something."""

    kind: MessageKind
    text: str


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How far it is, in all. The cost is told at the end."""

    turns: int
    cost_usd: float


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The last word. `line` is the client's own."""

    result: str
    is_error: bool
    line: bytes


News = Said | Counted | Ended


class StreamReader:
    """Reads the stream piece by piece."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_skipping = False  # the end of a line that was too long
        self._turns: set[str] = set()
        self._cost_usd = 0.0

    def feed(self, data: bytes) -> Iterator[News]:
        """Yield the news in all lines that `data` completes."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            line, is_whole = bytes(self._rest), not self._is_skipping
            self._rest.clear()
            self._is_skipping = False
            if is_whole:
                yield from self._read(line)
        self._add(rest)

    def close(self) -> Iterator[News]:
        """Yield the news in what stands after the last newline."""
        yield from self.feed(b"\n")

    def _add(self, piece: bytes) -> None:
        if self._is_skipping or len(self._rest) + len(piece) > MAX_LINE:
            self._rest.clear()
            self._is_skipping = True
        else:
            self._rest += piece

    def _read(self, line: bytes) -> Iterator[News]:
        try:
            event: Json = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        match event.get("type"):
            case "assistant":
                yield from self._assistant(event)
            case "result":
                yield from self._result(event, line)
            case _:
                return

    def _assistant(self, event: dict[str, Json]) -> Iterator[News]:
        message = event.get("message")
        if not isinstance(message, dict):
            return
        identity = message.get("id")
        if event.get("parent_tool_use_id") is None and isinstance(identity, str):
            if identity not in self._turns:
                self._turns.add(identity)
                yield Counted(turns=len(self._turns), cost_usd=self._cost_usd)
        content = message.get("content")
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict):
                yield from _block(block, is_error=event.get("error") is not None)

    def _result(self, event: dict[str, Json], line: bytes) -> Iterator[News]:
        turns, cost = event.get("num_turns"), event.get("total_cost_usd")
        self._cost_usd = _amount(cost, self._cost_usd)
        yield Counted(turns=int(_amount(turns, len(self._turns))), cost_usd=self._cost_usd)
        is_error = event.get("is_error") is True or event.get("subtype") != "success"
        text = _result_text(event)
        yield Said(kind=MessageKind.ERROR if is_error else MessageKind.RESULT, text=text)
        yield Ended(result=text, is_error=is_error, line=line)


def _block(block: dict[str, Json], *, is_error: bool) -> Iterator[News]:
    text, name = block.get("text"), block.get("name")
    if block.get("type") == "text" and isinstance(text, str) and text:
        yield Said(kind=MessageKind.ERROR if is_error else MessageKind.TEXT, text=_sound(text))
    elif block.get("type") == "tool_use" and isinstance(name, str):
        yield Said(kind=MessageKind.TOOL, text=_use(name, block.get("input")))


def _use(name: str, arguments: Json) -> str:
    """Return a tool's use in one short line: its name, and the argument that matters most."""
    shown = ""
    if isinstance(arguments, dict) and arguments:
        main = next((arguments[key] for key in _MAIN if isinstance(arguments.get(key), str)), None)
        shown = visible(_sound(main)) if isinstance(main, str) else visible_json(arguments, indent=None)
    line = f"{visible(_sound(name))}: {_sound(shown)}" if shown else visible(_sound(name))
    return line if len(line) <= MAX_USE else line[:MAX_USE] + "…"


def _result_text(event: dict[str, Json]) -> str:
    result, errors = event.get("result"), event.get("errors")
    if isinstance(result, str):
        return _sound(result)
    if isinstance(errors, list) and errors:
        return _sound("; ".join(str(error) for error in errors))
    return _sound(str(event.get("subtype") or "no result"))


def _amount(value: Json, otherwise: float) -> float:
    """Return a count or a sum that makes sense."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    return float(value) if 0 <= value < _LARGEST else otherwise


def _sound(text: str) -> str:
    """Return text that can be stored: half of a surrogate pair cannot."""
    return text.encode(errors="replace").decode()
