"""Claude Code, run once with `-p`: it is given its MCP server on the command line."""

import json
from typing import Final

from tests.e2e.claude import binary
from tests.e2e.command_agents import KEY, PROMPT, Client, Launch, Setting
from tests.e2e.messages_wire import MessagesWire

PACKAGE: Final = "@anthropic-ai/claude-code-linux-x64"


def _prepare(setting: Setting) -> Launch:
    config = setting.home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pml": setting.server.as_config()}}))
    # What `pml init --claude-code` writes: PML's tools are left to PML.
    argv = [binary(), "-p", "--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", "mcp__pml"]
    environment = {
        "ANTHROPIC_BASE_URL": setting.url,
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return Launch(argv=[*argv, "--", PROMPT], environment=environment)


CLIENT: Final = Client(
    name="claude", package=PACKAGE, prefix="mcp__pml__", wire=MessagesWire, prepare=_prepare
)
