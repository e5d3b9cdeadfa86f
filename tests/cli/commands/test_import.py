"""`pml import`: the lists of real clients, as they write them; nothing before a yes, and no value shown."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.offering import Registry
from tests.cli.terminals import on_terminal
from tests.commands import TIMEOUT_S, Pml, Ran, spawn
from tests.promises import promise

OK, FAILED, USAGE, DENIED, PENDING, GONE = 0, 1, 2, 3, 4, 5
KEY: Final = "sk-proj-S3cretS3cretS3cret"
TOKEN: Final = "ghp_0123456789abcdefABCDEF"
TELLS_KEY: Final = """
import json, os, sys
print("my key is", os.environ["A_TOKEN"], file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "told", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "key", "inputSchema": {"type": "object"}}]}
    else:
        text = f"{len(os.environ['A_TOKEN'])} characters"
        result = {"content": [{"type": "text", "text": text}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
LIST: Final[Mapping[str, Any]] = {
    "numStartups": 4,
    "mcpServers": {
        "files": {"type": "stdio", "command": "files-mcp", "args": ["--root", "/srv"], "env": {}},
        "my tool": {
            "command": "/usr/bin/python3",
            "args": ["server.py", "--api-key", TOKEN],
            "env": {"OPENAI_API_KEY": KEY, "LOG": "debug"},
        },
        "helper": {"type": "http", "url": "https://x.example.com", "headersHelper": "/bin/x"},
        "odd": {"type": "ws", "url": "wss://x.example.com"},
        "pml": {"command": "/opt/pml", "args": ["stdio"]},
        "loader": {"command": "x", "env": {"LD_PRELOAD": "/tmp/x.so"}},
    },
    "projects": {"/somewhere/else": {"mcpServers": {"theirs": {"command": "no"}}}},
}


class Clients:
    """The files of clients in the test's home and workspace."""

    def __init__(self, pml: Pml, home: Path, workspace: Path) -> None:
        self.pml = pml
        self.home = home
        self.workspace = workspace
        self.claude = home / ".claude.json"
        self.config = home / ".pml" / "config.json"

    def write(self, path: str, text: str) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def claude_has(self, servers: Mapping[str, Any]) -> None:
        self.claude.write_text(json.dumps({"mcpServers": servers}, indent=2))

    def entries(self) -> Any:
        return json.loads(self.config.read_text()).get("mcpServers", {}) if self.config.exists() else {}

    def preview(self, *argv: str) -> dict[str, Any]:
        ran = self.pml("import", "--dry-run", "--as-is", "--json", *argv)
        assert ran.code == OK
        return {each["name"]: each for each in ran.json["servers"]}

    def take(self, *argv: str) -> Ran:
        return self.pml("import", "--yes", "--as-is", *argv)

    def everything_of_pmls(self) -> str:
        files = [path for path in self.config.parent.rglob("*") if path.is_file()]
        return "\n".join(path.read_bytes().decode(errors="replace") for path in files)


@pytest.fixture
def clients(pml: Pml, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Clients:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    return Clients(pml, home, workspace)


@promise("import:one-yes")
def test_a_look_tells_of_each_server_what_becomes_of_it_and_writes_nothing(clients: Clients) -> None:
    clients.claude.write_text(json.dumps(LIST, indent=2))
    found = clients.preview()
    assert {name: each["outcome"] for name, each in found.items()} == {
        "files": "taken",
        "my-tool": "taken",
        "helper": "refused",
        "odd": "refused",
        "pml": "own",
        "loader": "refused",
    }
    assert found["files"]["command"] == ["files-mcp", "--root", "/srv"]
    assert (found["files"]["file"], found["files"]["line"]) == (str(clients.claude), 4)
    assert "headersHelper" in found["helper"]["why"]
    assert "`ws`" in found["odd"]["why"]
    assert "LD_PRELOAD" in found["loader"]["why"]
    assert not clients.config.exists()


@promise("import:one-yes")
def test_without_a_yes_nothing_is_written(clients: Clients) -> None:
    clients.claude.write_text(json.dumps(LIST))
    assert clients.pml("import", "--as-is").code == PENDING
    with on_terminal("import", "--as-is", typed="n\n", stdout_too=True) as terminal:
        assert terminal.process.wait(60) == DENIED
    assert not clients.config.exists()


@promise("import:no-value-shown")
def test_one_yes_takes_the_servers_and_a_second_one_the_secrets(clients: Clients) -> None:
    clients.claude.write_text(json.dumps(LIST))
    with on_terminal("import", "--as-is", typed="y\ny\n", stdout_too=True) as terminal:
        assert terminal.process.wait(60) == OK
    assert clients.entries() == {
        "files": {"command": "files-mcp", "args": ["--root", "/srv"], "env": {}},
        "my-tool": {
            "command": "/usr/bin/python3",
            "args": ["server.py", "--api-key", "${MY_TOOL_API_KEY}"],
            "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}", "LOG": "debug"},
        },
    }
    stored = clients.pml("secrets", "list", "--json").json["secrets"]
    assert [each["name"] for each in stored] == ["MY_TOOL_API_KEY", "OPENAI_API_KEY"]


@promise("import:no-value-shown")
@pytest.mark.parametrize("more", [(), ("--json",), ("--replace",), ("--dry-run",), ("--dry-run", "--json")])
def test_no_value_is_shown_or_left_in_a_file_when_secrets_stay_out(
    clients: Clients, more: tuple[str, ...]
) -> None:
    url = f"https://user:{KEY}@x.example.com/mcp?api_key={TOKEN}"
    clients.claude_has(
        {
            **LIST["mcpServers"],
            "by-url": {
                "type": "http",
                "url": url,
                "headers": {"Authorization": f"Bearer {TOKEN}", "X-Key": KEY},
            },
            "proxied": {
                "command": "npx",
                "args": ["-y", "remote", url, "--header", f"Authorization:Bearer {KEY}"],
            },
        }
    )
    ran = clients.take(*more)
    assert ran.code == OK
    shown = ran.out + ran.err + clients.everything_of_pmls()
    assert KEY not in shown
    assert TOKEN not in shown
    if "--json" not in more and "--dry-run" not in more:
        assert "my-tool needs OPENAI_API_KEY: pml secrets set OPENAI_API_KEY" in ran.out
        assert TOKEN in clients.claude.read_text()  # even with --replace: it is nowhere else


def test_what_is_there_is_not_taken_again_and_what_differs_is_kept(clients: Clients) -> None:
    clients.claude_has({"files": {"command": "files-mcp"}, "web": {"command": "web-mcp"}})
    assert clients.take().code == OK
    clients.claude_has({"files": {"command": "files-mcp"}, "web": {"command": "another"}})
    found = clients.preview()
    assert {name: each["outcome"] for name, each in found.items()} == {"files": "same", "web": "different"}
    assert clients.take().code == OK
    assert clients.entries()["web"] == {"command": "web-mcp"}


def test_of_two_clients_with_the_same_name_the_first_is_taken_and_the_other_told_of(clients: Clients) -> None:
    clients.claude_has({"web": {"command": "web-mcp"}, "both": {"command": "b"}})
    cursor = {"mcpServers": {"web": {"command": "another"}, "both": {"command": "b"}}}
    clients.write(".cursor/mcp.json", json.dumps(cursor))
    servers = clients.pml("import", "--dry-run", "--as-is", "--json").json["servers"]
    assert [(it["name"], it["client"], it["outcome"]) for it in servers] == [
        ("web", "Claude Code", "taken"),
        ("both", "Claude Code", "taken"),
        ("web", "Cursor", "different"),
    ]
    assert [it["client"] for it in servers[1]["also"]] == ["Cursor"]


def test_every_client_is_read_as_it_writes(clients: Clients, workspace: Path) -> None:
    clients.write(
        ".cursor/mcp.json",
        '\ufeff{ // mine\n  "mcpServers": {"cursor": {"command": "c", "env": {"T": "${env:TOK}"}},},\n}',
    )
    clients.write(
        ".config/Code/User/mcp.json", '{"servers": {"code": {"command": "v", "args": ["${input:key}"]}}}'
    )
    clients.write(".config/Code/User/settings.json", '{"mcp": {"servers": {"older": {"command": "o"}}}}')
    clients.write(".config/Claude/claude_desktop_config.json", '{"mcpServers": {"desk": {"command": "d"}}}')
    clients.write(
        ".codex/config.toml",
        'model = "x"\n[mcp_servers.codex]\ncommand = "x"\nargs = ["-q"]\nenv_vars = ["HOMEPAGE"]\n',
    )
    clients.write(".gemini/settings.json", '{"mcpServers": {"gem": {"command": "g", "trust": true}}}')
    clients.write(
        ".config/opencode/opencode.jsonc",
        '{"mcp": {"open": {"type": "local", "command": ["o", "-x"], "environment": {"A": "{env:B}"}}}}',
    )
    clients.write(".codeium/windsurf/mcp_config.json", '{"mcpServers": {"surf": {"command": "s"}}}')
    (workspace / ".mcp.json").write_text('{"mcpServers": {"here": {"command": "h"}}}')
    found = clients.preview()
    assert {name: (each["client"], each["command"]) for name, each in found.items()} == {
        "here": ("Claude Code", ["h"]),
        "desk": ("Claude Desktop", ["d"]),
        "cursor": ("Cursor", ["c"]),
        "code": ("VS Code", ["v", "${input:key}"]),
        "older": ("VS Code", ["o"]),
        "codex": ("Codex", ["x", "-q"]),
        "gem": ("Gemini", ["g"]),
        "open": ("opencode", ["o", "-x"]),
        "surf": ("Windsurf", ["s"]),
    }
    assert found["code"]["outcome"] == "refused"
    assert found["here"]["project"] is True
    assert found["gem"]["left_out"] == ["trust"]
    assert found["codex"]["line"] == 2
    assert clients.take().code == OK
    written = clients.entries()
    assert written["cursor"]["env"] == {"T": "${TOK}"}
    assert written["codex"]["env"] == {"HOMEPAGE": "${HOMEPAGE}"}
    assert written["open"]["env"] == {"A": "${B}"}


@promise("import:client-files-stay")
@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        (".claude.json", '{"mcpServers": {"a": {"command": "x"}}', ":1:"),
        (".claude.json", '{"mcpServers": []}', ":1:16"),
        (".cursor/mcp.json", "{\n  # no\n}", ":2:3"),
        (".cursor/mcp.json", '{"mcpServers": {"a": {"command": "x"}, "a": {}}}', ":1:40"),
        (".codex/config.toml", "[mcp_servers.x\n", ":1:15"),
    ],
)
def test_a_broken_file_is_told_of_with_its_place_and_left_alone(
    clients: Clients, path: str, text: str, place: str
) -> None:
    file = clients.write(path, text)
    clients.write(".gemini/settings.json", '{"mcpServers": {"gem": {"command": "g"}}}')
    ran = clients.take("--replace")
    assert ran.code == OK
    assert f"cannot be read, and stays as it is: {file}{place}" in ran.out
    assert file.read_text() == text
    assert list(clients.entries()) == ["gem"]
    broken = clients.pml("import", "--dry-run", "--json").json["broken"]
    assert [each["file"] for each in broken] == [str(file)]


@promise("import:client-files-stay")
def test_a_clients_file_changes_only_with_replace_and_undo_gives_it_back(clients: Clients) -> None:
    kept = '"helper": {"url": "u", "headersHelper": "x"}'
    text = f'{{ // keep me\n "a": 1,\n "mcpServers": {{"web": {{"command": "w"}}, {kept}}}}}'
    file = clients.write(".cursor/mcp.json", text)
    assert clients.take().code == OK
    assert file.read_text() == text
    ran = clients.take("--replace")
    assert ran.code == OK
    assert "mcpServers.web (line 3)" in ran.out
    assert file.read_text() == text.replace('"web": {"command": "w"}, ', "")
    assert file.with_name("mcp.json.before-pml").read_text() == text
    assert clients.pml("import", "--undo", "--yes").code == OK
    assert file.read_text() == text
    assert [path.name for path in file.parent.iterdir()] == ["mcp.json"]


@promise("import:undone")
def test_undoing_removes_what_was_added_and_nothing_else(clients: Clients) -> None:
    clients.config.parent.mkdir(mode=0o700)
    before = '{\n  "mcpServers": {\n    "mine": {"command": "m"}\n  }\n}\n'
    clients.config.write_text(before)
    assert clients.pml("import", "--undo", "--yes").code == GONE
    clients.claude.write_text(json.dumps(LIST))
    os.environ.pop("OPENAI_API_KEY", None)
    assert clients.take("--move-secrets").code == OK
    ran = clients.pml("import", "--undo", "--yes", "--json")
    assert ran.json["removed"] == ["files", "my-tool"]
    assert clients.config.read_text() == before
    assert clients.pml("secrets", "list", "--json").json["secrets"] == []
    assert clients.pml("import", "--undo", "--yes").code == GONE


@promise("import:undone")
def test_what_was_changed_since_is_left_as_it_is(clients: Clients) -> None:
    clients.claude_has({"web": {"command": "w"}, "other": {"command": "o"}})
    assert clients.take().code == OK
    clients.config.write_text(clients.config.read_text().replace('"w"', '"changed"'))
    ran = clients.pml("import", "--undo", "--yes")
    assert ran.code == OK
    assert clients.entries() == {"web": {"command": "changed"}}
    assert "web was changed or removed since" in ran.err


def test_what_is_of_the_workspace_can_go_into_its_file(
    clients: Clients, local: Path, workspace: Path
) -> None:
    clients.claude.write_text(
        json.dumps(
            {
                "mcpServers": {"mine": {"command": "m"}},
                "projects": {str(workspace): {"mcpServers": {"own": {"command": "o"}}}},
            }
        )
    )
    assert clients.take("--workspace-file").code == OK
    assert json.loads(local.read_text())["mcpServers"] == {"own": {"command": "o"}}
    assert clients.pml("servers", "list", "--json").json["servers"][0]["name"] == "own"  # and it is trusted


def test_how_a_client_logs_in_comes_over_without_its_secret(clients: Clients) -> None:
    oauth = {"clientId": "abc", "callbackPort": 8123, "clientSecret": KEY}
    clients.claude_has({"web": {"type": "http", "url": "https://x.example.com/mcp", "oauth": oauth}})
    assert clients.preview()["web"]["left_out"] == ["oauth.clientSecret"]
    assert KEY not in clients.take().out
    assert clients.entries()["web"]["oauth"] == {"client_id": "abc", "callback_port": 8123}


def test_hidden_characters_of_a_command_are_shown(clients: Clients) -> None:
    clients.claude_has({"web": {"command": "w", "args": ["a\u202eb"]}})
    assert '"a\\u202eb"' in clients.take().out


@pytest.mark.usefixtures("agent")
def test_beneath_an_agent_it_only_looks(clients: Clients) -> None:
    clients.claude_has({"web": {"command": "w"}})
    assert clients.take().code == FAILED
    assert clients.entries() == {}
    assert clients.pml("import", "--dry-run", "--as-is").code == OK


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["nothere"], GONE, "no server `nothere`"),
        (["--from", "cursr"], GONE, "did you mean `cursor`?"),
        (["--undo", "web"], USAGE, "takes back the whole last import"),
    ],
)
def test_what_is_not_there_is_told(clients: Clients, argv: list[str], code: int, words: str) -> None:
    clients.claude_has({"web": {"command": "w"}})
    ran = clients.pml("import", *argv)
    assert ran.code == code
    assert words in ran.err


@promise("secrets:entry-filled-at-start")
def test_an_imported_server_gets_its_secret_when_it_is_started_and_no_log_has_it(
    clients: Clients, workspace: Path
) -> None:
    script = workspace / "told.py"
    script.write_text(TELLS_KEY)
    clients.claude_has(
        {"told": {"command": sys.executable, "args": [str(script)], "env": {"A_TOKEN": KEY, "MODE": "x"}}}
    )
    assert clients.take("--move-secrets").code == OK
    assert clients.pml("rules", "allow", "told:*", "--user").code == OK
    ran = clients.pml("call", "told:key")
    assert ran.code == OK, ran.err
    assert f"{len(KEY)} characters" in ran.out
    logs = [path.read_text() for path in (clients.config.parent / "logs").rglob("*") if path.is_file()]
    assert logs
    assert not any(KEY in text for text in logs)
    assert clients.pml("secrets", "remove", "A_TOKEN").code == OK
    refused = clients.pml("call", "told:key")
    assert refused.code == FAILED
    assert "A_TOKEN" in refused.err


@pytest.fixture
def index(clients: Clients, registry: Registry) -> Registry:
    """The index on loopback; nothing but clients' lists tells of its server."""
    clients.config.write_text("{}")
    return registry


@promise("import:proven")
def test_a_command_that_fetches_a_package_becomes_an_install_and_is_called_at_once(
    clients: Clients, index: Registry
) -> None:
    clients.claude_has(
        {
            "greeter": {"command": "uvx", "args": ["greeter-server"], "env": {"A_TOKEN": KEY, "MODE": "x"}},
            "local": {"command": "node", "args": ["x.js"]},
        }
    )
    looked = clients.pml("import", "--dry-run", "--json").json["servers"]
    assert [each["outcome"] for each in looked] == ["proven", "taken"]
    assert looked[0]["install"]["dependency"]["integrity"] == index.integrity
    assert looked[0]["install"]["dependency"]["env"] == {"MODE": "…"}
    assert index.leftovers == []
    ran = clients.pml("import", "--yes", "--move-secrets")
    assert ran.code == OK, ran.err
    assert index.integrity in ran.out
    assert list(clients.entries()) == ["local"]
    assert clients.pml("rules", "allow", "greeter:*", "--user").code == OK
    assert "hello you" in clients.pml("call", "greeter:greet", '{"name": "you"}').out
    again = clients.pml("import", "--dry-run", "--json").json["servers"]
    assert [each["outcome"] for each in again] == ["same", "same"]
    stored = (clients.config.parent / "secrets.json").read_text()
    assert KEY not in clients.everything_of_pmls().replace(stored, "")
    undone = clients.pml("import", "--undo", "--yes", "--json").json
    assert sorted(undone["removed"]) == ["greeter", "local"]
    assert index.leftovers == []
    assert clients.pml("deps", "list", "--json").json["installed"] == []


@promise("import:proven")
@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"command": "uvx", "args": ["nothing-like-it"]}, "no such package"),
        ({"command": "uvx", "args": ["--from", "git+https://x.example.com/y", "y"]}, "URL"),
        ({"command": "uvx", "args": ["greeter-server", "--token", TOKEN]}, "secret among its arguments"),
        ({"command": "uvx", "args": ["greeter-server"], "cwd": "/srv"}, "a folder of its own"),
        ({"command": "uvx", "args": ["greeter-server"], "env": {"A": "${B}"}}, "under another name"),
        ({"command": "uvx", "args": ["greeter-server", "${HOME}"]}, "variables in its command line"),
    ],
)
def test_what_cannot_be_an_install_is_taken_as_it_is_with_the_reason(
    clients: Clients, index: Registry, entry: dict[str, Any], why: str
) -> None:
    clients.claude_has({"it": entry})
    [found] = clients.pml("import", "--dry-run", "--json").json["servers"]
    assert found["outcome"] == "taken"
    assert why in found["why"]
    assert "NOT PROVEN, NOT CONTAINED" in clients.pml("import", "--dry-run").out


@promise("import:undone")
def test_an_import_that_fails_in_the_middle_leaves_nothing(clients: Clients, index: Registry) -> None:
    clients.claude_has({"greeter": {"command": "uvx", "args": ["greeter-server"]}, "x": {"command": "x"}})
    index.index.endless.add(index.file)
    with spawn(["import", "--yes"]) as process:
        index.wait_for_download()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert clients.entries() == {}
    assert index.leftovers == []
    assert clients.pml("import", "--undo", "--yes").code == GONE


CLEAN: Final = "hunter-two-is-lower-case"


@promise("import:no-value-shown")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "docker", "args": ["run", "-i", "-e", f"SOME_API_KEY={CLEAN}", "image"]},
        {"command": "docker", "args": ["run", f"--env=SOME_API_KEY={CLEAN}", "image"]},
        {"command": "x", "args": [f"--header=Authorization: Bearer {CLEAN}"]},
        {"command": "x", "args": ["-H", f"X-Api-Key: {CLEAN}"]},
        {"command": "env", "args": [f"SOME_TOKEN={CLEAN}", "server"]},
        {"url": f"https://x.example.com/mcp?api_key={CLEAN}%2Fand%20more"},
        {"url": f"https://x.example.com/mcp?%61pi_key={CLEAN}"},
        {"url": f"https://{TOKEN}@x.example.com/mcp"},
        {"url": f"https://x.example.com/s/{TOKEN}/mcp"},
        {"url": f"https://x.example.com/mcp#token={TOKEN}"},
    ],
)
def test_no_value_is_shown_however_it_is_spelled(clients: Clients, entry: dict[str, Any]) -> None:
    clients.claude_has({"odd": entry})
    for more in ((), ("--json",)):
        ran = clients.pml("import", "--dry-run", "--as-is", *more)
        assert ran.code == OK
        assert CLEAN not in ran.out + ran.err
        assert TOKEN not in ran.out + ran.err


@promise("import:no-foreign-secret")
@pytest.mark.parametrize("where", ["secrets", "environment", "another server"])
def test_a_secret_of_one_name_and_another_value_is_not_given_to_a_server(
    clients: Clients, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone's list could name the user's token, and have it filled in with the real one."""
    evil = {"command": "evil-server", "env": {"GITHUB_TOKEN": TOKEN}}
    servers: dict[str, Any] = {"evil": evil}
    if where == "secrets":
        clients.claude_has({"good": {"command": "good-server", "env": {"GITHUB_TOKEN": KEY}}})
        assert clients.take("--move-secrets").code == OK
    elif where == "environment":
        monkeypatch.setenv("GITHUB_TOKEN", KEY)
    else:
        servers = {"good": {"command": "good-server", "env": {"GITHUB_TOKEN": KEY}}, **servers}
    clients.claude_has(servers)
    ran = clients.take("--move-secrets")
    assert ran.code == OK
    assert clients.entries()["evil"]["env"] == {"GITHUB_TOKEN": "${EVIL_GITHUB_TOKEN}"}
    assert "env.GITHUB_TOKEN looks like a secret: `${EVIL_GITHUB_TOKEN}` stands in its place" in ran.out


@promise("import:one-yes")
def test_what_a_server_gets_from_the_environment_is_shown(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", KEY)
    clients.claude_has(
        {
            "far": {"url": "https://x.example.com/mcp", "headers": {"X-Odd": "${GITHUB_TOKEN}"}},
            "near": {"command": "x", "env": {"COLOUR": "${GITHUB_TOKEN:-red}"}},
        }
    )
    ran = clients.pml("import", "--dry-run", "--as-is")
    assert ran.out.count("gets GITHUB_TOKEN from your environment or `pml secrets`") == 2
    found = clients.preview()
    assert [found[name]["variables"] for name in ("far", "near")] == [["GITHUB_TOKEN"]] * 2
    assert KEY not in ran.out + ran.err


@promise("import:undone")
def test_a_copy_that_somebody_changed_is_not_given_back(clients: Clients, workspace: Path) -> None:
    """The copy lies where an agent may write; the client starts what its own file names."""
    mine = workspace / ".mcp.json"
    mine.write_text(json.dumps({"mcpServers": {"files": {"command": "files-mcp"}}}))
    assert clients.take("--replace").code == OK
    left = mine.read_text()
    copy = mine.with_name(".mcp.json.before-pml")
    copy.write_text(json.dumps({"mcpServers": {"files": {"command": "/tmp/evil"}}}))
    ran = clients.pml("import", "--undo", "--yes")
    assert mine.read_text() == left
    assert "has changed since the import" in ran.err


@promise("import:client-files-stay")
def test_what_a_client_changed_since_it_was_shown_is_not_taken_out(clients: Clients) -> None:
    clients.claude_has({"files": {"command": "files-mcp"}, "keyed": {"command": "x", "env": {"A_KEY": KEY}}})
    with on_terminal("import", "--as-is", "--replace", typed="y\n", stdout_too=True) as terminal:
        terminal.until("Move A_KEY")
        clients.claude_has({"files": {"command": "another-one"}})
        left = clients.claude.read_text()
        terminal.type("n\n")
        code, _ = terminal.end()
    assert code == FAILED
    assert "another program changed" in terminal.screen
    assert clients.claude.read_text() == left
    assert clients.entries() == {}
