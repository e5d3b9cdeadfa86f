"""Files and directories that only their user can read."""

import os
from pathlib import Path


def private_directory(path: Path) -> Path:
    """Create `path` and what is missing above it (0700) and return it. An existing one is left as it is."""
    if not path.parent.exists():
        private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def private_file(path: Path) -> Path:
    """Create the file empty (0600) where it is missing and return its path."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return path


def too_open(path: Path) -> bool:
    """Tell whether others than its user can reach `path`."""
    return os.name == "posix" and bool(path.stat().st_mode & 0o077)
