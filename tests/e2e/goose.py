"""goose, run once: its settings are YAML in `~/.config/goose`, its model speaks chat completions.

It declares forms and ends at any: the gateway must be told to show it none.
"""

import json
from typing import Final

from tests.e2e.chat_wire import MODEL, PATH, ChatWire
from tests.e2e.command_agents import KEY, PROMPT, Client, Launch, Setting
from tests.e2e.installed import PACKAGES

PACKAGE: Final = "@aaif/goose-binary-linux-x64"


def _prepare(setting: Setting) -> Launch:
    server = setting.server
    gateway = {
        "name": "pml",
        "type": "stdio",
        "enabled": True,
        "cmd": server.command,
        "args": [*server.args, "--no-forms"],
        "envs": server.env,
        "timeout": 300,
    }
    settings = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": MODEL,
        "GOOSE_MODE": "auto",
        "GOOSE_TELEMETRY_ENABLED": False,
        "extensions": {"pml": gateway},
    }
    folder = setting.home / ".config" / "goose"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(settings))  # which is YAML too
    environment = {
        "OPENAI_HOST": setting.url,
        "OPENAI_BASE_PATH": PATH.removeprefix("/"),
        "OPENAI_API_KEY": KEY,
        "GOOSE_DISABLE_KEYRING": "1",
    }
    binary = PACKAGES / PACKAGE / "bin" / "goose"
    return Launch(argv=[str(binary), "run", "--no-session", "--text", PROMPT], environment=environment)


CLIENT: Final = Client(name="goose", package=PACKAGE, prefix="pml__", wire=ChatWire, prepare=_prepare)
