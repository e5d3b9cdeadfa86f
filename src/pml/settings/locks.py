"""A lock between processes: one holder at a time, freed by the system however the holder ends.

The lock is on an open file, never on the file's existence, so a crash leaves nothing stuck. The file itself
stays: to delete it would let two processes hold two locks of one name.
"""

import os
import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pml.core.errors import Unavailable
from pml.host.locks import open_lock_file, try_lock

LOCK_TIMEOUT_S: Final = 10.0  # an edit takes milliseconds: longer means that its holder hangs
_RETRY_S: Final = (0.001, 0.01)  # jittered, so that waiting processes do not march in step


@contextmanager
def locked(path: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> Generator[None]:
    """Hold the lock `path` for the block. Raises: Unavailable if another process holds it for too long."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = open_lock_file(str(path), create=True)
    except OSError as exc:
        raise Unavailable(f"cannot open the lock file `{path}`: {exc.strerror}") from exc
    try:
        deadline = time.monotonic() + timeout_s
        while not try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"another process has held the lock file `{path}` for {timeout_s:g} s",
                    hint="end that process, then try again",
                )
            time.sleep(random.uniform(*_RETRY_S))
        yield
    finally:
        os.close(descriptor)
