"""Gemini CLI, run once: its settings are JSON in `~/.gemini`, its model speaks the Gemini API."""

import json
from typing import Final

from tests.e2e.command_agents import KEY, PROMPT, Client, Launch, Setting
from tests.e2e.gemini_wire import GeminiWire
from tests.e2e.installed import NODE, PACKAGES

PACKAGE: Final = "@google/gemini-cli"


def _prepare(setting: Setting) -> Launch:
    # Without trust the client hides every tool where it has no person to ask.
    gateway = {**setting.server.as_config(), "trust": True}
    settings = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "mcpServers": {"pml": gateway},
    }
    folder = setting.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))
    start = str(PACKAGES / PACKAGE / "bundle" / "gemini.js")
    environment = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": setting.url}
    argv = [NODE, start, "--model", "gemini-2.5-flash", "--prompt", PROMPT]
    return Launch(argv=argv, environment=environment)


CLIENT: Final = Client(name="gemini", package=PACKAGE, prefix="mcp_pml_", wire=GeminiWire, prepare=_prepare)
