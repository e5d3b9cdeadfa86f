"""Prompts for the person at the terminal. Without a terminal, nothing is asked."""

import contextlib
import signal
import sys
from collections.abc import Generator, Mapping
from typing import TextIO


def is_interactive() -> bool:
    """Tell whether a person can see a question and answer it."""
    streams: tuple[TextIO | None, ...] = (sys.stdin, sys.stdout)  # a closed one is None
    return all(stream is not None and stream.isatty() for stream in streams)


def confirm(question: str) -> bool:
    """Return whether the person said yes; anything else, and the end of the input, is no."""
    return answer(question) is True


def answer(question: str) -> bool | None:
    """Return whether the person said yes; anything else is no, and the end of the input no answer: None."""
    with _interruptible():
        try:
            said = input(f"{question} [y/N] ")
        except EOFError:
            print()
            return None
    return said.strip().lower() in ("y", "yes")


def ask_for(what: str) -> str:
    """Return the line that the person types; the end of the input is an empty one."""
    with _interruptible():
        try:
            return input(f"{what}: ").strip()
        except EOFError:
            print()
            return ""


def choose(question: str, answers: Mapping[str, str], *, default: str) -> str:
    """Return what the person chose of `answers`, by its letter; `default` for nothing or the end of input."""
    with _interruptible():
        while True:
            try:
                said = input(f"{question} ").strip().lower()
            except EOFError:
                print()
                return default
            if not said or said[0] in answers:
                return answers[said[0]] if said else default


@contextlib.contextmanager
def _interruptible() -> Generator[None]:
    """Let a signal end the block at once: asyncio's own handlers only act when the loop runs again."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
