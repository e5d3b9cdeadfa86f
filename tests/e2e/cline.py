"""Cline, run once: its settings are JSON in `~/.cline/data`, its model speaks chat completions."""

import json
from typing import Final

from tests.e2e.chat_wire import MODEL, ChatWire
from tests.e2e.command_agents import KEY, PROMPT, TURN_S, Client, Launch, Setting
from tests.e2e.installed import PACKAGES

PACKAGE: Final = "@cline/cli-linux-x64"
PROVIDER: Final = "openai-compatible"


def _prepare(setting: Setting) -> Launch:
    model = {"provider": PROVIDER, "apiKey": KEY, "model": MODEL, "baseUrl": f"{setting.url}/v1"}
    entry = {"settings": model, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    # It gives a server three seconds for its first answer otherwise, which a busy machine may need.
    gateway = {**setting.server.as_config(), "timeout": int(TURN_S)}
    files = {
        "providers.json": {"version": 1, "lastUsedProvider": PROVIDER, "providers": {PROVIDER: entry}},
        "global-settings.json": {"telemetryOptOut": True, "autoUpdateEnabled": False},
        "cline_mcp_settings.json": {"mcpServers": {"pml": gateway}},
    }
    folder = setting.home / ".cline" / "data" / "settings"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    environment = {
        "CLINE_NO_AUTO_UPDATE": "1",
        "E2E_TEST": "true",  # or it asks its maker which features to have
        # Or it leaves a daemon, which starts the MCP servers of later runs, in the folder of the first.
        "CLINE_SESSION_BACKEND_MODE": "local",
    }
    binary = PACKAGES / PACKAGE / "bin" / "cline"
    return Launch(argv=[str(binary), PROMPT], environment=environment)


CLIENT: Final = Client(name="cline", package=PACKAGE, prefix="pml__", wire=ChatWire, prepare=_prepare)
