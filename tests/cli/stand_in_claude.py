"""A stand-in for Claude Code's own commands: it tells a version, and keeps the servers that it is told of."""

import json
import os
import sys
from pathlib import Path
from typing import Any

VERSION = "2.1.325"


def main(words: list[str]) -> None:
    if words[:1] != ["mcp"]:
        print(f"{VERSION} (Claude Code)")
        return
    path = Path(os.environ["HOME"]) / ".claude.json"
    config: Any = json.loads(path.read_text()) if path.exists() else {}
    project = config.setdefault("projects", {}).setdefault(os.getcwd(), {})
    servers = project.setdefault("mcpServers", {})
    match words[1:]:
        case ["add-json", "--scope", "local", name, text]:
            servers[name] = json.loads(text)
        case ["remove", "--scope", "local", name]:
            del servers[name]
        case ["remove", "--scope", "user", name]:
            del config["mcpServers"][name]
        case _:
            sys.exit(f"unknown: {words}")
    path.write_text(json.dumps(config))


if __name__ == "__main__":
    main(sys.argv[1:])
