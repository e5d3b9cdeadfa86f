"""The Python that runs installed servers: the one PML runs on, without the virtual environment around it."""

import os
import sys
import sysconfig
from pathlib import Path


def base_python() -> str:
    """Return the real path of the interpreter."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def runtime() -> str:
    """Return what packages are installed for: `python3.11`. The minor version decides what of them runs."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def runtime_folders() -> tuple[str, ...]:
    """Return the files and folders that the interpreter is made of, none of them within another."""
    shared = sysconfig.get_config_var("LIBDIR") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None
    places = [base_python(), sys.base_prefix, sys.base_exec_prefix, *([shared] if shared else [])]
    found = sorted({Path(os.path.realpath(place)) for place in places})
    return tuple(
        str(one) for one in found if not any(one.is_relative_to(other) for other in found if other != one)
    )
