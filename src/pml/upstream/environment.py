"""The environment that a server gets: an allow-list of the user's, and what is declared for it.

Whether a declared variable may be declared was decided when the file or the metadata was read.
"""

import sys
from collections.abc import Mapping
from typing import Final

from pml.core.marks import SET
from pml.core.servers import ServerSpec
from pml.host.folders import absolute_only

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
# An installed server knows its place: nothing of the user's home or search path leads it elsewhere.
_PASSED_TO_INSTALLED: Final = frozenset({"LANG", "LANGUAGE", "TZ"})
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def environment_of(
    spec: ServerSpec, environ: Mapping[str, str], *, values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return all that the server's process finds in its environment; `values` are those it requires."""
    passed = {name: value for name, value in environ.items() if _is_passed(name)}
    if spec.artefact is not None:
        if sys.platform != "win32":
            kept = {name: passed[name] for name in passed if _is_passed_to_installed(name)}
            passed = {**kept, "PATH": _SYSTEM_PATH, "HOME": spec.artefact.state}
        required = set(spec.artefact.env_required)
        declared = {name: value for name, value in (values or {}).items() if name in required}
        return {**passed, **declared, **spec.env, **SET}
    if "PATH" in passed:
        passed["PATH"] = absolute_only(passed["PATH"])
    return {**passed, **spec.env, **SET}


def _is_passed(name: str) -> bool:
    if sys.platform == "win32":
        return name.upper() in _PASSED_ON_WINDOWS
    return name in _PASSED or name.startswith("LC_")


def _is_passed_to_installed(name: str) -> bool:
    return name in _PASSED_TO_INSTALLED or name.startswith("LC_")
