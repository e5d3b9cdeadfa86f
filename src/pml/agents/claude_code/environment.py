"""The environment of a launched Claude Code: an allow-list, so that nothing of ours or unknown steers it.

It needs its user's home, account and network. Variables of its own are named one by one: some that exist
switch its permissions off. How long it waits for a tool is set here.
"""

import sys
from collections.abc import Mapping
from typing import Final

from pml.core.sessions.agent_marks import SET
from pml.host.folders import absolute_only

CALL_S: Final = 24 * 3600  # an answer may take a person's day; progress does not extend this one
_CONNECT_S: Final = 60  # a hub on a busy machine takes seconds
_WAITS: Final = {"MCP_TIMEOUT": str(_CONNECT_S * 1000), "MCP_TOOL_TIMEOUT": str(CALL_S * 1000)}
_LOOPBACK: Final = "127.0.0.1,localhost,::1"
_PASSED: Final = frozenset(
    {
        *(
            "HOME",
            "LOGNAME",
            "PATH",
            "SHELL",
            "TERM",
            "COLORTERM",
            "USER",
            "LANG",
            "LANGUAGE",
            "TZ",
            "TMPDIR",
        ),
        *(
            "NO_COLOR",
            "FORCE_COLOR",
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "DBUS_SESSION_BUS_ADDRESS",
            "SSH_AUTH_SOCK",
        ),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
        *("GCLOUD_PROJECT", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
        *("CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS"),
        *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
        *("CLAUDE_CODE_SKIP_BEDROCK_AUTH", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "CLAUDE_CODE_SKIP_FOUNDRY_AUTH"),
        *("CLAUDE_CODE_CLIENT_CERT", "CLAUDE_CODE_CLIENT_KEY", "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE"),
        *("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_SUBAGENT_MODEL", "MAX_THINKING_TOKENS"),
        *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING"),
        *("DISABLE_AUTOUPDATER", "DISABLE_PROMPT_CACHING", "DISABLE_COST_WARNINGS"),
    }
)
_PREFIXES: Final = ("LC_", "XDG_", "ANTHROPIC_", "AWS_", "VERTEX_REGION_")
_PASSED_ON_WINDOWS: Final = frozenset(
    {
        *(
            "APPDATA",
            "COMSPEC",
            "HOMEDRIVE",
            "HOMEPATH",
            "LOCALAPPDATA",
            "PATHEXT",
            "PROGRAMDATA",
            "SYSTEMROOT",
        ),
        *(
            "PROGRAMFILES",
            "PROGRAMFILES(X86)",
            "SYSTEMDRIVE",
            "TEMP",
            "TMP",
            "USERNAME",
            "USERPROFILE",
            "WINDIR",
        ),
    }
)


def environment_of(environ: Mapping[str, str], *, is_persons: bool) -> dict[str, str]:
    """Return all that a launched agent finds in its environment.

    A file that a prompt mentions (`@notes.md`) is read without asking: in a prompt of a person's own only.
    """
    passed = {name: value for name, value in environ.items() if _is_passed(name)}
    if "PATH" in passed:
        passed["PATH"] = absolute_only(passed["PATH"])
    proxied = {name: _not_proxied(passed.get(name, "")) for name in ("NO_PROXY", "no_proxy")}
    prompts = {} if is_persons else {"CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1"}
    waits = {**_WAITS, "ENABLE_TOOL_SEARCH": "false"}  # PML's tools are few
    return {**passed, **proxied, **waits, **prompts, **SET}


def _not_proxied(given: str) -> str:
    """Return the hosts that no proxy is asked for, with the hub's: its token is for the hub alone."""
    return ",".join(filter(None, (given, _LOOPBACK)))


def _is_passed(name: str) -> bool:
    if sys.platform == "win32" and name.upper() in _PASSED_ON_WINDOWS:
        return True
    return name in _PASSED or name.startswith(_PREFIXES)
