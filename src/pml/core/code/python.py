"""Python code as a tree; nothing of it is run. Code that cannot be parsed, for whatever reason, has none."""

import ast
import threading
import warnings
from typing import Final

_PARSING: Final = threading.Lock()
_TRIES: Final = 3


def parse_python(code: str) -> ast.Module | None:
    """Return the tree of the code, None if there is none. Total; safe in every thread."""
    with _PARSING:  # Python 3.11 counts the depth of a tree once for all threads, and fails when it miscounts
        for _ in range(_TRIES):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of odd escapes: they matter to whoever wrote them
                    return ast.parse(code)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
            except SystemError:
                continue
    return None
