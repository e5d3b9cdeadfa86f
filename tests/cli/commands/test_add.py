"""`pml add` and `pml remove`: real packages of an index on loopback, entries, and what is refused."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from pml.app import find_place, open_variables
from tests.cli.doors import entering
from tests.cli.offering import SERVER, Registry
from tests.cli.terminals import on_terminal
from tests.commands import TIMEOUT_S, Pml, spawn
from tests.install.mcpb_files import files, manifest, packed, put
from tests.install.python_index import make_wheel
from tests.promises import promise
from tests.registry.official import Official, official, server_json

OK, FAILED, USAGE, DENIED, PENDING, GONE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
LINE: Final = "uvx greeter-server"
TOKEN: Final = "ghp_0123456789abcdefABCDEF"
GREET: Final = ("call", "greeter:greet", '{"name": "you"}')
NEEDY: Final = f"import os\nos.environ['GREETER_KEY']\n{SERVER}"


@pytest.fixture
def index(registry: Registry) -> Registry:
    """The index on loopback; no registry is configured, so nothing but the line tells of the server."""
    (registry.home / "config.json").write_text("{}")
    return registry


def offered(index: Registry, name: str, version: str, source: str) -> None:
    module = name.replace("-", "_")
    wheel = make_wheel(name, version, files={f"{module}.py": source}, scripts={name: f"{module}:main"})
    index.index.add(name, version, wheel)


def added(index: Registry) -> list[str]:
    folder = index.home / "added"
    return sorted(os.listdir(folder)) if folder.exists() else []


@promise("add:pinned-and-proven")
def test_a_package_that_no_catalog_knows_is_added_by_a_line_and_runs_proven(
    index: Registry, pml: Pml
) -> None:
    offered(index, "greeter-server", "1.1", SERVER)
    ran = pml("add", LINE, "--yes", "--net", "none", "--json")
    assert ran.code == OK, ran.err
    assert ran.json["tools"] == ["greet", "hold"]
    assert ran.json["install"]["install"] == "uvx greeter-server==1.1"  # the newest, pinned
    [entry] = json.loads((index.home / "added" / "greeter.json").read_text())["mcp_deps"]
    assert entry["lock"]["packages"][0]["integrity"] == [entry["integrity"]]
    assert pml("rules", "allow", "greeter:*", "--user").code == OK
    assert "hello you" in pml(*GREET).out
    [installed] = pml("deps", "list", "--json").json["installed"]
    assert (installed["proof"], installed["lock"]) == ("verified", ran.json["install"]["lock"])
    module = next(Path(installed["path"]).rglob("greeter_server.py"))
    module.chmod(0o600)
    module.write_text(module.read_text().replace("hello", "bye"))
    refused = pml(*GREET)
    assert refused.code != OK
    assert "bye" not in refused.out


def test_its_tools_are_listed_to_an_agent_as_those_of_a_configured_server(index: Registry, pml: Pml) -> None:
    assert pml("add", LINE, "--yes").code == OK
    with entering("stdio, legacy") as agent:
        listed = agent.ask("tools/list", {})["result"]["tools"]
    assert {"greeter__greet", "greeter__hold"} <= {tool["name"] for tool in listed}


@promise("add:one-consent")
def test_before_a_yes_nothing_is_installed_or_written(index: Registry, pml: Pml) -> None:
    looked = pml("add", LINE, "--dry-run")
    assert looked.code == OK
    assert "greeter-server==1.0" in looked.out
    assert index.integrity in looked.out
    assert pml("add", LINE).code == PENDING
    assert pml("add", LINE, "--json").code == PENDING
    with on_terminal("add", LINE, typed="n\n", stdout_too=True) as terminal:
        assert terminal.process.wait(TIMEOUT_S) == DENIED
    assert (added(index), index.leftovers) == ([], [])


def test_one_yes_adds_it_and_adding_it_again_changes_nothing(index: Registry, pml: Pml) -> None:
    with on_terminal("add", LINE, typed="y\n", stdout_too=True) as terminal:
        assert terminal.process.wait(TIMEOUT_S) == OK
    assert added(index) == ["greeter.json"]
    assert pml("add", LINE, "--yes").out.splitlines()[-1] == "greeter is there already"
    other = pml("add", LINE, "--yes", "--access", "read")
    assert other.code == FAILED
    assert "`pml remove greeter`" in other.err


@promise("add:nothing-half-done")
@pytest.mark.parametrize("source", ["def main():\n    raise SystemExit('no')\n", "syntax error"])
def test_a_server_that_does_not_start_is_not_kept(index: Registry, pml: Pml, source: str) -> None:
    offered(index, "broken-server", "1.0", source)
    ran = pml("add", "uvx broken-server", "--yes")
    assert ran.code == FAILED
    assert "it was not added" in ran.err
    assert (added(index), index.leftovers) == ([], [])
    assert pml("deps", "list", "--json").json["installed"] == []


@promise("add:nothing-half-done")
def test_an_interrupted_add_leaves_nothing(index: Registry, pml: Pml) -> None:
    index.index.endless.add(index.file)
    with spawn(["add", LINE, "--yes"]) as process:
        index.wait_for_download()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == INTERRUPTED
    assert (added(index), index.leftovers) == ([], [])


def test_a_secret_is_named_and_the_server_starts_when_it_is_set(
    index: Registry, pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(index, "needy-server", "1.0", NEEDY)
    ran = pml("add", "uvx needy-server", "--env", "GREETER_KEY", "--yes")
    assert ran.code == OK
    assert "pml secrets set GREETER_KEY" in ran.out
    assert pml("rules", "allow", "needy:*", "--user").code == OK
    assert pml("call", "needy:greet", '{"name": "you"}').code != OK
    monkeypatch.setenv("GREETER_KEY", "x")
    assert "hello you" in pml("call", "needy:greet", '{"name": "you"}').out


def test_a_range_and_an_older_version_are_pinned_to_one(index: Registry, pml: Pml) -> None:
    offered(index, "greeter-server", "2.0", SERVER)
    assert "greeter-server==1.0" in pml("add", "uvx 'greeter-server<2'", "--dry-run").out
    assert "greeter-server==1.0" in pml("add", "uvx greeter-server==1.0", "--dry-run").out
    assert "greeter-server==2.0" in pml("add", LINE, "--dry-run").out


@promise("add:reach-shown")
def test_the_reach_is_that_of_the_options_or_the_folders_that_the_line_names(
    index: Registry, pml: Pml, tmp_path: Path, home: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()

    def reach(*argv: str) -> Any:
        return pml("add", *argv, "--dry-run", "--json").json["install"]["permissions"]

    assert reach(LINE) == {"net": True, "workspace": "none"}
    assert reach(f"{LINE} --root={docs} {home}") == {"net": True, "workspace": "none", "write": [str(docs)]}
    assert reach(LINE, "--net", "none", "--access", "read") == {"workspace": "read"}
    assert reach(LINE, "--net", "api.example.com", "--run", "git") == {
        "net": ["api.example.com"],
        "workspace": "none",
        "run": ["git"],
    }


def test_a_rule_that_denies_all_of_it_keeps_it_out(index: Registry, pml: Pml) -> None:
    assert pml("rules", "deny", "greeter:*", "--user").code == OK
    assert pml("add", LINE, "--yes").code == DENIED
    assert added(index) == []


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["uvx nothing-like-it"], GONE, "no such package"),
        (["nothinglikeit"], GONE, "no server `nothinglikeit`"),
        ([LINE, "--name", "memory"], FAILED, "the catalog has another server `memory`"),
        ([LINE, "--name", "pml"], USAGE, "PML uses it for itself"),
        ([LINE, "--before", "soon"], USAGE, "2026-01-31"),
        ([LINE, "--net", "a b"], USAGE, "--net a b"),
        ([LINE, "--write", "/"], USAGE, "--write /"),
        ([LINE, "--env", "LD_PRELOAD=x"], USAGE, "LD_PRELOAD"),
        ([LINE, "--workspace-file"], USAGE, "not a workspace's"),
        (["uvx --index-url x greeter-server"], USAGE, "names a registry"),
        (["uvx git+https://x.example.com/y"], USAGE, "URL"),
        (["npx -y x@npm:other@1.0.0"], USAGE, "alias"),
        (["npx -y $(x)"], USAGE, "for a shell"),
        (["npx 'x"], USAGE, "not a command line"),
        (["node x.js $HOME"], USAGE, "for a shell"),
        (["node x.js | tee y"], USAGE, "for a shell"),
        (["http://mcp.example.com/mcp", "--no-try"], USAGE, "plain http"),
        (["https://mcp.example.com/mcp", "--net", "none"], USAGE, "`--net` is for a package"),
        ([LINE, "--sse"], USAGE, "are for a URL"),
        (["./nothing.mcpb"], GONE, "nothing.mcpb"),
        (["io.github.acme/weather"], GONE, "io.github.acme/weather"),
        ([""], USAGE, "empty"),
        (["a\u202eb"], USAGE, "hidden"),
    ],
)
def test_what_cannot_be_added_is_told_with_the_reason(
    index: Registry, pml: Pml, argv: list[str], code: int, words: str
) -> None:
    ran = pml("add", *argv, "--yes")
    assert (ran.code, words in ran.err) == (code, True), ran.err
    assert added(index) == []
    assert json.loads((index.home / "config.json").read_text()) == {}


@promise("add:no-secret-on-the-line")
@pytest.mark.parametrize(
    "argv",
    [
        ["https://mcp.example.com/mcp", "--header", f"Authorization: Bearer {TOKEN}"],
        [f"https://mcp.example.com/mcp?api_key={TOKEN}"],
        [f"node x.js --token {TOKEN}"],
        [LINE, "--env", f"GREETER_TOKEN={TOKEN}"],
    ],
)
def test_a_secret_is_not_taken_as_an_argument_nor_repeated(
    index: Registry, pml: Pml, argv: list[str]
) -> None:
    ran = pml("add", *argv, "--yes", "--no-try")
    assert ran.code == USAGE
    assert "pml secrets set" in ran.err
    assert TOKEN not in ran.out + ran.err


def test_a_url_is_written_with_variables_in_its_headers(index: Registry, pml: Pml) -> None:
    header = "Authorization: Bearer ${EXAMPLE_TOKEN}"
    ran = pml("add", "https://mcp.example.com/mcp", "--header", header, "--sse", "--yes", "--json")
    assert ran.code == OK  # not tried: what it needs is not set
    assert (ran.json["name"], ran.json["missing"]) == ("example", ["EXAMPLE_TOKEN"])
    assert json.loads((index.home / "config.json").read_text())["mcpServers"] == {
        "example": {
            "type": "sse",
            "url": "https://mcp.example.com/mcp",
            "headers": {"Authorization": "Bearer ${EXAMPLE_TOKEN}"},
        }
    }


def test_a_program_is_said_not_to_be_proven_and_is_tried(index: Registry, pml: Pml, workspace: Path) -> None:
    script = workspace / "hello.py"
    script.write_text(f"{SERVER}\nmain()\n")
    ran = pml("add", f"{sys.executable} {script}", "--yes")
    assert ran.code == OK, ran.err
    assert "NOT PROVEN, NOT CONTAINED" in ran.out
    assert "it offers 2 tools" in ran.out
    assert list(json.loads((index.home / "config.json").read_text())["mcpServers"]) == ["hello"]
    script.write_text("raise SystemExit(3)\n")
    assert pml("add", f"{sys.executable} {script}", "--name", "other", "--yes").code == FAILED
    assert list(json.loads((index.home / "config.json").read_text())["mcpServers"]) == ["hello"]


@promise("remove:all-of-it")
def test_removing_takes_the_entry_the_files_and_only_its_own_secrets(index: Registry, pml: Pml) -> None:
    offered(index, "needy-server", "1.0", NEEDY)
    for name in ("GREETER_KEY", "SHARED_KEY"):
        open_variables(find_place()).secrets.store(name, "x")
    options = ("--env", "GREETER_KEY", "--env", "SHARED_KEY", "--yes")
    assert pml("add", "uvx needy-server", *options).code == OK
    assert pml("add", "node x.js", "--env", "SHARED_KEY", "--yes", "--no-try").code == OK
    assert pml("remove", "needy").code == PENDING
    assert pml("remove", "needy", "--dry-run").code == OK
    assert added(index) == ["needy.json"]
    assert pml("remove", "needy", "--secrets", "--yes").code == OK
    assert (added(index), index.leftovers) == ([], [])
    assert [it["name"] for it in pml("secrets", "list", "--json").json["secrets"]] == ["SHARED_KEY"]
    assert pml("remove", "x", "--yes").code == OK
    assert json.loads((index.home / "config.json").read_text())["mcpServers"] == {}
    assert pml("remove", "x", "--yes").code == GONE


def test_the_file_of_a_bundle_is_added(index: Registry, pml: Pml, workspace: Path) -> None:
    put(workspace, packed(manifest(), files()))
    ran = pml("add", "./greeter.mcpb", "--yes", "--json")
    assert ran.code == OK, ran.err
    assert ran.json["tools"] == ["hello"]
    assert added(index) == ["greeter.json"]


def test_a_broken_entry_is_told_of_starts_nothing_and_can_be_removed(index: Registry, pml: Pml) -> None:
    assert pml("add", LINE, "--yes").code == OK
    (index.home / "added" / "greeter.json").write_text("{")
    assert pml("rules", "allow", "greeter:*", "--user").code == OK
    ran = pml(*GREET)
    assert ran.code != OK
    assert "hello you" not in ran.out
    assert "greeter.json" in ran.err
    assert pml("remove", "greeter", "--yes").code == OK
    assert (added(index), index.leftovers) == ([], [])


@promise("add:no-file-installs-itself")
def test_a_file_put_among_the_added_servers_installs_nothing_by_itself(index: Registry, pml: Pml) -> None:
    dependency = {
        "name": "greeter",
        "type": "stdio",
        "install": LINE + "==1.0",
        "integrity": index.integrity,
        "lock": index.locked(),
        "permissions": {"workspace": "none", "net": True},
    }
    entry = {"fqdn": "pml.added.greeter", "type": "server", "tools": ["greet"], "mcp_deps": [dependency]}
    (index.home / "added").mkdir(mode=0o700)
    (index.home / "added" / "greeter.json").write_text(json.dumps(entry))
    assert pml("rules", "allow", "greeter:*", "--user").code == OK
    assert pml(*GREET).code == PENDING
    assert index.leftovers == []
    assert not index.was_downloaded


@contextmanager
def registry_of_names() -> Generator[Official]:
    """A registry with the official API, in a thread of its own: commands have event loops of theirs."""
    ready, done = threading.Event(), threading.Event()
    found: list[Official] = []

    async def serve() -> None:
        async with official() as it:
            found.append(it)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(TIMEOUT_S)
        yield found[0]
    finally:
        done.set()
        thread.join()


def test_what_a_registry_lists_is_added_by_its_full_name(index: Registry, pml: Pml) -> None:
    remote = {"type": "streamable-http", "url": "https://mcp.example.com/mcp"}
    with registry_of_names() as names:
        names.put(server_json("io.github.acme/far", packages=[], remotes=[remote]))
        names.put(server_json("io.github.acme/gone"))
        names.status["io.github.acme/gone"] = "deleted"
        (index.home / "config.json").write_text(json.dumps({"registry": names.url}))
        ran = pml("add", "io.github.acme/far", "--yes", "--no-try", "--json")
        gone = pml("add", "io.github.acme/gone", "--yes")
        unknown = pml("add", "io.github.acme/nothing", "--yes")
    assert ran.code == OK, ran.err
    assert (ran.json["name"], ran.json["url"]) == ("far", "https://mcp.example.com/mcp")
    assert (gone.code, "was deleted" in gone.err) == (FAILED, True)
    assert unknown.code == GONE
    assert list(json.loads((index.home / "config.json").read_text())["mcpServers"]) == ["far"]
