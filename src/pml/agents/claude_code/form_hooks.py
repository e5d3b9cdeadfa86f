"""Form hooks: settings of Claude Code that let a program answer its forms in a person's place.

A file that cannot be read may have one, so it is taken to have one. What a hook is seen to be able to answer
stays so while the gateway runs: the client keeps the hooks that it started with.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from pml.core.text import visible
from pml.host.textfiles import read_text

_NOT_SETTINGS: Final = os.path.join(os.sep, "proc")
FORM_EVENTS: Final = ("Elicitation", "ElicitationResult")  # one answers a form, the other changes the answer
_IN_FOLDER: Final = ("settings.json", "settings.local.json")
_MANAGED: Final = {
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": "C:\\Program Files\\ClaudeCode",
}


def config_folder(environ: Mapping[str, str], user_home: Path) -> Path:
    """Return where the client keeps what is its user's."""
    given = environ.get("CLAUDE_CONFIG_DIR")
    return Path(given) if given else user_home / ".claude"


def settings_files(config: Path, folders: Sequence[Path], *, managed: Path | None = None) -> list[Path]:
    """Return the settings that apply in any of the folders, whether they are there or not.

    Those of an administrator come first, in `managed`, then the user's, with the hooks of its plugins, then
    each folder's own.
    """
    top = managed or Path(_MANAGED.get(sys.platform, "/etc/claude-code"))
    local = [folder / ".claude" / name for folder in folders for name in _IN_FOLDER]
    return [
        top / "managed-settings.json",
        *sorted(top.glob("managed-settings.d/*.json")),
        config / "settings.json",
        *sorted(config.glob("plugins/cache/*/*/*/hooks/hooks.json")),
        *dict.fromkeys(local),
    ]


class FormHooks:
    """The hooks that may answer the forms of one client, which works in these folders."""

    def __init__(self, config: Path, folders: Sequence[Path], *, managed: Path | None = None) -> None:
        self._config = config
        self._folders = [Path(os.path.realpath(folder)) for folder in folders]
        self._managed = managed
        self._found: str | None = None

    def __call__(self) -> str | None:
        """Return why a form's answer may not be a person's, None if nothing tells that."""
        files = () if self._found else settings_files(self._config, self._folders, managed=self._managed)
        for path in files:
            self._found = self._found or why_scripted(path)
        return self._found


def why_scripted(path: Path) -> str | None:
    """Return what in the settings file lets a program answer forms, None if nothing does."""
    shown, file = visible(str(path)), read_text(os.path.abspath(path), forbidden=_NOT_SETTINGS)
    if file.is_missing:
        return None
    try:
        hooks = _hooks(file.text)
    except (ValueError, RecursionError):
        return f"{shown} cannot be read, and may have a hook that answers forms"
    found = [event for event in FORM_EVENTS if hooks and hooks.get(event)]
    return f"{shown} has a hook `{found[0]}`, which can answer forms" if found else None


def _hooks(text: str | None) -> Mapping[str, object] | None:
    """Return the hooks of a settings file. Raises: ValueError if it is not one, or could not be read."""
    if text is not None and not text.strip():
        return None
    settings: object = json.loads(text or "")
    if not isinstance(settings, Mapping):
        raise ValueError("expected an object")
    hooks = cast("Mapping[str, object]", settings).get("hooks")
    return cast("Mapping[str, object]", hooks) if isinstance(hooks, Mapping) else None
