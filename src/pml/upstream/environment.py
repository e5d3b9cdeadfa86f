"""The environment that a server gets: an allow-list of the user's, and what its configuration declares.

Whether a declared variable may be declared was decided when the file was read.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pml.core.servers import ServerSpec

_PASSED: Final = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
)
_PASSED_ON_WINDOWS: Final = frozenset(
    {
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROGRAMDATA"),
        *("PROGRAMFILES", "PROGRAMFILES(X86)", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP"),
        *("TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)


def environment_of(spec: ServerSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return all that the server's process finds in its environment."""
    passed = {name: value for name, value in environ.items() if _is_passed(name)}
    if "PATH" in passed:
        passed["PATH"] = _absolute_only(passed["PATH"])
    return {**passed, **spec.env}


def _is_passed(name: str) -> bool:
    if sys.platform == "win32":
        return name.upper() in _PASSED_ON_WINDOWS
    return name in _PASSED or name.startswith("LC_")


def _absolute_only(path: str) -> str:
    """Return the search path without relative entries: those would find programs in the workspace."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))
