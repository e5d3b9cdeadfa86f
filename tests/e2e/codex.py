"""Codex, run once: its settings are TOML in `~/.codex`, its model speaks the Responses API."""

import json
from typing import Final, cast

from tests.e2e.command_agents import KEY, PROMPT, Client, Launch, Setting
from tests.e2e.installed import NODE, PACKAGES
from tests.e2e.responses_wire import ResponsesWire

PACKAGE: Final = "@openai/codex"


def _prepare(setting: Setting) -> Launch:
    server = setting.server
    provider = {
        "name": "scripted",
        "base_url": f"{setting.url}/v1",
        "env_key": "SCRIPTED_KEY",
        "wire_api": "responses",
    }
    gateway = {
        "command": server.command,
        "args": list(server.args),
        "env": server.env,
        "required": True,  # or the first turn may go without its tools
        "default_tools_approval_mode": "approve",  # or it refuses what is not read-only, with nobody to ask
    }
    settings = {
        "model": "scripted",
        "model_provider": "scripted",
        "approval_policy": "never",
        "sandbox_mode": "read-only",
        "check_for_update_on_startup": False,
        "analytics": {"enabled": False},
        "features": {"plugins": False, "apps": False},
        "model_providers.scripted": provider,
        "mcp_servers.pml": gateway,
    }
    folder = setting.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())
    )
    start = str(PACKAGES / PACKAGE / "bin" / "codex.js")
    argv = [NODE, start, "exec", "--skip-git-repo-check", PROMPT]
    return Launch(argv=argv, environment={"SCRIPTED_KEY": KEY})


def _toml(value: object) -> str:
    """Return the value in TOML, which differs from JSON in its tables alone."""
    if isinstance(value, dict):
        table = cast(dict[str, object], value)
        pairs = (f"{json.dumps(key)} = {_toml(inner)}" for key, inner in table.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value)


CLIENT: Final = Client(
    name="codex", package=PACKAGE, prefix="mcp__pml__", wire=ResponsesWire, prepare=_prepare
)
