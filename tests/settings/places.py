"""Where the tests of configuration files have them, and when they read them."""

from pathlib import Path

from pml.settings.config_files import WorkspaceFiles

ODD = '{"z": 1.50, "permissions": {"ask": ["*"],\r\n  "deny": [ "Bash" ] }, "idle_s": 60, "a": 1E2}\r\n'


class Now:
    """The time of reading, far after every change unless a test says otherwise."""

    ns = 1 << 62

    def __call__(self) -> int:
        return self.ns


def files_in(
    home: Path, workspace: Path, *, now: Now | None = None, lock_timeout_s: float = 10
) -> WorkspaceFiles:
    return WorkspaceFiles(
        pml_home=home / ".pml",
        workspace=workspace,
        user_home=home,
        environ={},
        now_ns=now or Now(),
        lock_timeout_s=lock_timeout_s,
    )


def listing(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir())
