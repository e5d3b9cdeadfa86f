"""Which start of the machine this is: what was not on the disk when the power went is not there after it."""

import sys
from functools import cache


@cache
def boot_id() -> str | None:
    """Return a word that is the same until the machine starts again; None where the system does not tell."""
    if sys.platform == "linux":
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip() or None
        except OSError:
            return None
    import psutil

    return str(int(psutil.boot_time()))
