"""The real file system as the rules see it: where a path leads once its links are followed."""

import os


class RealPaths:
    """Follows links on disk; keeps the part of a path that does not exist."""

    def __init__(self, home: str) -> None:
        self._home = home

    @property
    def home(self) -> str:
        return self._home

    def real(self, path: str) -> str:
        """Return where the absolute `path` leads. Raises: ValueError for what no system can open, OSError."""
        if "\0" in path or not os.path.isabs(path):
            raise ValueError("expected an absolute path without NUL")
        real = os.path.realpath(path, strict=False)
        # POSIX lets `//etc` mean something else than `/etc`; on the systems PML runs on it does not.
        return "/" + real.lstrip("/") if real.startswith("//") else real
