"""Closures that were looked up lately, kept so that what is installed is what was shown, by any process.

A kept closure proves nothing: an approval binds its digest, and what it names is verified.
"""

import hashlib
import json
import os
import re
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from pml.core.errors import Invalid
from pml.core.packages.capability import Package
from pml.core.packages.lock import Lock, check_lock_of, lock_json, parse_lock
from pml.core.ports.world import Clock
from pml.core.values import Json
from pml.host.private import private_directory
from pml.host.replace import replace_file

_KEPT: Final = timedelta(hours=1)  # longer than anybody is asked for; a new release is seen after it
_NAME: Final = re.compile(r"(?:npm|pypi)-.*\.json")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.]+")


class ResolvedLocks:
    """The folder `PML_HOME/locks`, in which file locks of others lie too."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._folder = home / "locks"
        self._clock = clock

    def find(self, package: Package) -> Lock | None:
        """Return the closure of `package`, if it was looked up within the hour."""
        try:
            kept: Json = json.loads(self._path(package).read_bytes())
            if not isinstance(kept, dict) or not self._is_fresh(datetime.fromisoformat(str(kept["at"]))):
                return None
            lock = parse_lock(kept["lock"], what="the kept lock")
            check_lock_of(lock, ecosystem=package.ecosystem, name=package.name, version=package.version)
        except (OSError, ValueError, TypeError, KeyError, Invalid):
            return None
        return lock

    def keep(self, package: Package, lock: Lock) -> None:
        """Keep the closure of `package`. Raises: OSError."""
        kept: Json = {"at": self._clock.now().isoformat(), "lock": lock_json(lock)}
        private_directory(self._folder)
        replace_file(self._path(package), json.dumps(kept).encode(), mode=0o600)

    def remove_old(self) -> None:
        """Remove what is too old to use."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                path = self._folder / name
                if _NAME.fullmatch(name) and not self._is_kept(path):
                    with suppress(OSError):  # one that cannot be removed does no harm
                        path.unlink()

    def _is_kept(self, path: Path) -> bool:
        try:
            return self._is_fresh(datetime.fromisoformat(str(json.loads(path.read_bytes())["at"])))
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def _is_fresh(self, at: datetime) -> bool:
        # One that comes from the future, by a clock that was wrong, would be fresh for longer than its hour.
        return timedelta(0) <= self._clock.now() - at <= _KEPT

    def _path(self, package: Package) -> Path:
        """Return the file; its name has a hash, since two names may be the same once made safe."""
        of = f"{package.name}@{package.version}"
        safe = _UNSAFE.sub("-", of).strip("-.")[:80]
        return (
            self._folder / f"{package.ecosystem}-{safe}-{hashlib.sha256(of.encode()).hexdigest()[:12]}.json"
        )
