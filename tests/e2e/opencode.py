"""opencode, run once: its settings are JSON in `~/.config/opencode`, its model speaks chat completions."""

import json
from pathlib import Path
from typing import Final

from tests.e2e.chat_wire import MODEL, ChatWire
from tests.e2e.command_agents import KEY, PROMPT, Client, Launch, Setting
from tests.e2e.installed import PACKAGES

PACKAGE: Final = "opencode-linux-x64"
PLUGIN: Final = "@opencode-ai/plugin"
# It would ask the network for a list of models, for a newer version, and for programs that read code.
ALONE: Final = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
}


def _prepare(setting: Setting) -> Launch:
    server = setting.server
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{setting.url}/v1", "apiKey": KEY},
        "models": {MODEL: {"limit": {"context": 100_000, "output": 10_000}}},
    }
    gateway = {
        "type": "local",
        "command": [server.command, *server.args],
        "environment": server.env,
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["local"],
        "provider": {"local": provider},
        "model": f"local/{MODEL}",
        "small_model": f"local/{MODEL}",
        "mcp": {"pml": gateway},
    }
    folder = setting.home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(settings))
    _seem_installed(folder)
    binary = PACKAGES / PACKAGE / "bin" / "opencode"
    return Launch(argv=[str(binary), "run", PROMPT], environment=ALONE)


def _seem_installed(folder: Path) -> None:
    """Have it take for installed what it would install beside its settings at every start, for plug-ins."""
    lock = {"packages": {"": {"dependencies": {PLUGIN: "*"}}}}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    (folder / "node_modules").mkdir()


CLIENT: Final = Client(name="opencode", package=PACKAGE, prefix="pml_", wire=ChatWire, prepare=_prepare)
