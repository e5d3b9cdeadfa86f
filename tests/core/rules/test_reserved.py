"""Which calls name PML itself, so that only a person decides them."""

import posixpath
from dataclasses import replace

import pytest

from pml.agents.known import KNOWN
from pml.core.rules.path_lookups import Budget, Look, OverBudget
from pml.core.rules.places import CallContext, Starts
from pml.core.rules.reserved import Surroundings, full_budget, small_budget, why_reserved
from pml.core.sessions.agent_profiles import AgentProfile, AgentProfiles
from pml.core.values import Json, JsonObject
from tests.promises import promise

HOME = "/srv/vault"
OWN = f"{HOME}/state/time"
FOLDERS = ("/repo", "/repo/shop", "/repo/shop/conf", "/repo/shop/bin", "/srv", HOME, f"{HOME}/state", OWN)


class LinkedTree:
    """A file system with a link into the home, a link to a settings file, and another name of one."""

    home = "/home/ana"

    def __init__(self, links: dict[str, str] | None = None) -> None:
        self.looks: list[str] = []
        self._links = links or {}

    def real(self, path: str) -> str:
        return posixpath.normpath(path)

    def link(self, path: str) -> str | None:
        raise NotImplementedError

    def is_writable(self, folder: str) -> bool:
        raise NotImplementedError

    def is_folder(self, path: str) -> bool:
        return path in FOLDERS or path.startswith("/repo/shop/many")

    def look(self, path: str) -> Look:
        self.looks.append(path)
        links = {
            "/repo/shop/notes": HOME,
            "/repo/shop/plain.txt": "conf/../.pml.json",
            "/repo/shop/.mcp.json": "conf/servers.json",
            "/repo/shop/round": "round",
            "/repo/shop/.codex": "conf/codex",
            "/repo/shop/bin/there": "../.mcp.json",
            **self._links,
        }
        files = {"/repo/shop/.pml.json": 7, "/repo/shop/twin.txt": 7, "/repo/shop/other.txt": 8}
        if path in links:
            return links[path]
        if path in files:
            return (1, files[path])
        if path.startswith("/repo/shop/many") and path.count("/") == 3:
            return (3, len(path))
        return (2, FOLDERS.index(path)) if path in FOLDERS else None


def around(tree: LinkedTree) -> Surroundings:
    context = CallContext("/repo/shop", tree, Starts(folders=("/srv",)))
    return Surroundings(home=HOME, workspace="/repo/shop", context=lambda: context, tree=tree, clients=KNOWN)


def why(tool: str, arguments: JsonObject, *, budget: Budget | None = None) -> str | None:
    return why_reserved(tool, arguments, around(LinkedTree()), budget=budget or small_budget())


def reserved(tool: str, arguments: JsonObject) -> bool:
    return why(tool, arguments, budget=full_budget()) is not None


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "command",
    [
        "pml approvals allow 1234",
        "/usr/local/bin/pml trust",
        "cd x && pml rules allow '*'",
        "x=$(pml token create)",
        "PML approvals list",
        "python -m pml",
        "python -c 'import pml.cli'",
        "uvx pml-gateway",
        "echo $PML_HOME",
        "env PML_HOME=/tmp/x true",
        "p'm'l approvals",
        'p"m"l approvals',
        "p\\ml approvals",
        "$'pml' approvals",
        "pm\\\nl approvals",
        "cat ~/.pml/config.json",
        "cat > .pml.json",
        "cd ~ && cat .pml/config.json",
        f"cat {HOME}/config.json",
        f"ls {HOME}",
        "cat /srv/va'ul't/config.json",
        "cat /srv/va\\ult/config.json",
        "cat /srv//vault/config.json",
        "cat /srv/./vault/config.json",
        "cat /srv/va\\\nult/config.json",
    ],
)
def test_a_command_that_names_pml_is_reserved(command: str) -> None:
    assert reserved("Bash", {"command": command})
    assert reserved("shell:run", {"command": command})
    assert reserved("shell:run", {"steps": [{"command": command}]})


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "path", [HOME, f"{HOME}/config.json", "~/.pml/config.json", "/home/ana/.pml", ".pml/config.json", ".pml"]
)
def test_a_path_into_the_home_is_reserved_for_whatever_tool(path: str) -> None:
    assert reserved("Read", {"file_path": path})
    assert reserved("files:write", {"to": {"paths": [path]}, "text": "x"})
    assert reserved("files:move", {path: "elsewhere"})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Bash", {"command": "ls -la"}),
        ("Bash", {"command": "cat xpml pmlx apml2 helpmlessly"}),
        ("Bash", {}),
        ("Bash", {"timeout": 3, "background": None, "again": True}),
        ("notes:add", {"text": "ask pml about it"}),
        ("Write", {"file_path": "README.md", "content": "pml approvals allow"}),
        ("Write", {"file_path": "README.md", "content": "see .mcp.json and .claude/settings.json"}),
        ("Read", {"file_path": "pml.json"}),
        ("Read", {"file_path": ".claude/agents/settings.json"}),
        ("Read", {"file_path": "other.txt"}),
        ("Read", {"file_path": "round"}),
        ("Glob", {"path": ".claude"}),
        ("files:move", {"source": "/repo/shop", "destination": "/repo/old"}),
        ("Grep", {"path": ".claude", "pattern": "x"}),
        ("Read", {"file_path": ".claude/agents/reviewer.md"}),
        ("files:read", {"path": ".claude/agents/reviewer.md"}),
        ("files:tree", {"path": ".", "excludePatterns": [".git", ".vscode", ".claude"]}),
        ("files:move", {"source": "/repo/shop/conf", "destination": "/repo/shop/.claudette"}),
        ("files:list", {"path": ".github"}),
        ("files:list", {"path": "~/.config"}),
        ("Write", {"file_path": "deploy/config.yaml", "content": "goose"}),
        ("Bash", {"command": "cat ~/.config/app/config.yaml .config"}),
        ("files:write", {"files": {"src/a.ts": "x", "settings.json": "{}"}, "cwd": "conf"}),
        ("files:write", {"cwd": "/repo/shop", "paths": ["src", "src/a.ts", "../other"]}),
        ("Bash", {"command": "cat .claude/agents/reviewer.md .github/workflows/ci.yml"}),
        ("Read", {"file_path": "docs/pml/index.md"}),
        ("web:fetch", {"url": "https://example.com/pml"}),
    ],
)
def test_what_names_it_in_text_or_not_at_all_is_not_reserved(tool: str, arguments: JsonObject) -> None:
    assert not reserved(tool, arguments)


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "path",
    [
        ".pml.json",
        "./x/../.pml.json",
        "/repo/shop/.PML.json",
        "/elsewhere/.pml.json",
        ".mcp.json",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".Claude/Settings.team.json",
        "~/.claude.json",
        "~/.claude/settings.json",
        "file:///repo/shop/.mcp.json",
        "plain.txt",
        "twin.txt",
        "conf/servers.json",
    ],
)
def test_a_path_that_leads_to_a_settings_file_is_reserved_for_whatever_tool(path: str) -> None:
    assert "says what agents may do" in (why("Write", {"file_path": path, "content": "{}"}) or "")
    assert reserved("files:edit", {"edits": [{"paths": [path]}]})


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "path",
    [
        ".codex/config.toml",
        ".codex/rules/default.rules",
        ".gemini/settings.json",
        "opencode.json",
        ".opencode/opencode.jsonc",
        ".config/opencode/opencode.json",
        ".config/opencode/config.json",
        ".clinerules/hooks/PreToolUse",
        ".cline/hooks/PreToolUse",
        ".cline/data/settings/cline_mcp_settings.json",
        ".cline/data/settings/global-settings.json",
        "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ".config/goose/config.yaml",
        ".config/goose/permission.yaml",
        ".cursor/mcp.json",
        ".vscode/mcp.json",
        ".vscode/settings.json",
        ".github/hooks/all.json",
    ],
)
def test_the_settings_of_other_clients_are_settings_files_too(path: str) -> None:
    assert reserved("files:write", {"path": f"/repo/shop/{path}"})
    assert reserved("files:write", {"files": {path: "{}"}})
    assert reserved("Bash", {"command": f"rm {path}"})


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "folder",
    [
        ".claude",
        ".claude/",
        "/repo/shop/.CLAUDE",
        "~/.claude",
        "x/../.claude/.",
        ".codex",
        "conf/codex",
        ".vscode",
        "~/.cline/data",
        "~/.config/goose",
    ],
)
def test_a_folder_of_settings_files_is_as_good_as_the_file(folder: str) -> None:
    assert "says what agents may do" in (why("files:move", {"source": "mine", "destination": folder}) or "")
    assert reserved("files:move", {"source": folder, "destination": "old"})
    assert reserved("files:remove", {"path": folder})
    assert reserved("files:copy", {"from": "mine", "to": folder})


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "command", ["mv mine .claude", "rm -rf .claude/*", "cd .claude && ls", "cp -r x/. .codex/."]
)
def test_a_command_that_names_such_a_folder_is_reserved(command: str) -> None:
    assert reserved("Bash", {"command": command})


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "arguments",
    [
        {"files": {".claude/settings.json": "{}"}},
        {"files": {".mcp.json": "{}"}},
        {"files": {".pml.json": "{}"}},
        {"files": {"plain.txt": "{}"}},
        {"files": [{"/repo/shop/twin.txt": {"content": "{}"}}]},
    ],
)
def test_the_name_of_a_member_is_a_path_too(arguments: JsonObject) -> None:
    assert reserved("files:write", arguments)


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "arguments",
    [
        {"cwd": "/repo/shop/.claude", "path": "settings.json"},
        {"directory": "/repo/shop/.claude", "filename": "settings.json"},
        {"/repo/shop/.claude": {"settings.json": "{}"}},
        {"cwd": "/repo/shop/bin", "path": "there"},
        {"cwd": "bin", "files": {"there": "{}"}},
        {"root": "/repo", "dir": "shop/bin", "file": "there"},
        {"path": ["/repo", "shop", "bin", "there"]},
        {"cwd": "/repo/shop/new", "path": "../plain.txt"},
        {"cwd": "/", "path": "srv/vault/config.json"},
        {"root": "/", "dir": "srv", "file": "vault/config.json"},
        {"root": "/srv", "file": "/vault/config.json"},
    ],
)
def test_a_path_is_read_from_the_folders_that_other_arguments_name(arguments: JsonObject) -> None:
    assert reserved("files:write", arguments)


@promise("reserved:bounded")
def test_many_folders_and_many_paths_are_in_doubt() -> None:
    paths: list[Json] = [f"many{number}" for number in range(400)]
    with pytest.raises(OverBudget):
        why("files:read", {"paths": paths}, budget=full_budget())
    assert why("files:read", {"paths": paths[:40]}, budget=full_budget()) is None


@promise("reserved:settings-files")
@pytest.mark.parametrize("name", [".pml.json", ".mcp.json", ".claude.json"])
def test_a_bare_name_of_one_is_enough_in_whatever_argument(name: str) -> None:
    assert reserved("files:write", {"name": name})


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "command",
    [
        "echo {} > .mcp.json",
        "rm .claude/settings.json",
        "rm .cla'ude'//settings.local.json",
        "sed -i d ~/.claude.json",
    ],
)
def test_a_command_that_names_one_is_reserved(command: str) -> None:
    assert reserved("Bash", {"command": command})
    assert not reserved("notes:add", {"text": f"{command}, they say"})


@promise("reserved:settings-files")
@pytest.mark.parametrize("lead", [0, 65_530, 65_535, 65_536, 131_000])
@pytest.mark.parametrize(
    "word", ["pml trust", "p" + "'" * 70_000 + "ml trust", f"cat {HOME}/x", "rm .mcp.json"]
)
def test_a_name_is_found_wherever_it_stands_in_a_long_text(lead: int, word: str) -> None:
    command = "x" * lead + " " + word + " " + "y" * 70_000

    assert why("Bash", {"command": command}, budget=full_budget())


@pytest.mark.parametrize("lead", [65_529, 65_533, 65_534, 65_535, 65_024])
def test_a_word_that_is_cut_is_not_taken_for_a_shorter_one(lead: int) -> None:
    command = "x" * lead + " apmlx pmlx apml " + "y" * 70_000

    assert why("Bash", {"command": command}, budget=full_budget()) is None


@promise("reserved:bounded")
@pytest.mark.parametrize(
    "arguments",
    [
        {"paths": [f"/x{n}" for n in range(60_000)]},
        {"path": ["/" + "a/" * 2000 + str(n) for n in range(500)]},
        {"path": ["[abcdefgh]" * 2 + "/b" * 1000 for _ in range(50)]},
        {"path": ["/repo/" + "../repo/" * 500 + str(n) for n in range(500)]},
        {f"k{n}": 0 for n in range(60_000)},
        {"rows": [list[int]()] * 60_000},
        {"paths": [f"/repo/shop/{n}" for n in range(11_000)]},
    ],
)
def test_more_than_is_looked_through_is_in_doubt(arguments: JsonObject) -> None:
    with pytest.raises(OverBudget):
        why("files:read", arguments, budget=full_budget())


@promise("reserved:bounded")
def test_paths_that_begin_alike_are_looked_up_once() -> None:
    tree = LinkedTree()
    paths = [f"/repo/shop/deep/er/{n}" for n in range(1000)]

    assert why_reserved("files:read", {"paths": paths}, around(tree), budget=full_budget()) is None
    assert len(tree.looks) == len(set(tree.looks))
    assert len(tree.looks) < 40


def test_arguments_as_deep_as_they_may_be_are_looked_through() -> None:
    deep: JsonObject = {"command": "pml trust"}
    for _ in range(90):
        deep = {"x": [deep]}

    assert reserved("shell:run", deep)


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "path",
    [
        "vault/config.json",
        "../../srv/vault/config.json",
        "notes/config.json",
        "/repo/shop/notes",
        "x/../notes/a",
    ],
)
def test_a_path_is_judged_by_where_it_leads(path: str) -> None:
    assert reserved("Edit", {"file_path": path})
    assert not reserved("Edit", {"file_path": "plans/config.json"})


@promise("reserved:person-only")
@pytest.mark.parametrize("odd", ["{a}", "*", "$x", "%41", "a`b", "x:y", "~x", "[ab]"])
def test_a_path_that_could_mean_much_is_also_taken_as_it_is_written(odd: str) -> None:
    assert reserved("Edit", {"file_path": f"{odd}/../../../srv/vault/config.json"})
    assert reserved("Edit", {"file_path": "notes"})
    assert not reserved("say", {"text": "notes"})


@promise("reserved:person-only")
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/repo/shop", ".mcp.json"),
        ("/repo/shop", "OpenCode.json"),
        ("/repo/shop", ".claude"),
        ("/repo/shop/.claude", "settings.json"),
        ("/repo/shop/.claude", "settings.mine.json"),
        ("/repo/shop/.codex", "config.toml"),
        ("/repo/shop/.codex/rules", "any.rules"),
    ],
)
def test_the_bare_name_of_a_settings_file_is_a_persons_whatever_the_argument_is_called(
    folder: str, name: str
) -> None:
    tree = LinkedTree()
    context = CallContext(folder, tree)
    inside = Surroundings(
        home=HOME, workspace="/repo/shop", context=lambda: context, tree=tree, clients=KNOWN
    )

    assert why_reserved("put", {"text": name}, inside, budget=small_budget()) is not None
    assert why_reserved("put", {"text": "notes.md"}, inside, budget=small_budget()) is None


def reserved_for_server(text: str, *, links: dict[str, str] | None = None, home: str = HOME) -> bool:
    """Tell whether a call of the installed server that works in `OWN` is reserved."""
    tree = LinkedTree(links)
    own = OWN.replace(HOME, home)
    context = CallContext("/repo/shop", tree, Starts(folders=(own,), homes=(own,), own=own))
    surroundings = Surroundings(
        home=home, workspace="/repo/shop", context=lambda: context, tree=tree, clients=KNOWN
    )
    return why_reserved("time:now", {"path": text}, surroundings, budget=full_budget()) is not None


@promise("reserved:own-folder")
@pytest.mark.parametrize(
    "text", ["Asia/Tokyo", ".", "x", "~/x", "~", "a/../b", "../time/x", "../../state/time/x"]
)
def test_what_stays_in_a_servers_own_folder_is_not_reserved_for_that_server(text: str) -> None:
    assert not reserved_for_server(text)
    assert not reserved_for_server(text, links={"/var": "/srv"}, home="/var/vault")


@promise("reserved:own-folder")
@pytest.mark.parametrize(
    "text",
    [
        "../../config.json",
        "..",
        "../..",
        "../other/x",
        "../time2/x",
        "~/../other/x",
        "a/../../other/x",
        "/srv/vault/pml.db",
        "../../../vault/tokens/x",
        "notes/state/other/x",
        "made/config.json",
    ],
)
def test_what_leads_elsewhere_in_the_home_is_reserved_for_it_too(text: str) -> None:
    assert reserved_for_server(text, links={f"{OWN}/made": "../.."})


@promise("reserved:own-folder")
@pytest.mark.parametrize("target", ["..", ".", "other", HOME])
def test_a_link_in_the_place_of_its_own_folder_makes_nothing_its_own(target: str) -> None:
    assert reserved_for_server("x/y", links={OWN: target})
    assert reserved_for_server("config.json", links={OWN: target})


@promise("reserved:person-only")
def test_a_client_is_added_by_a_row_and_pmls_own_file_is_guarded_without_any() -> None:
    row = AgentProfile(settings_files=(".newagent/policy.yaml",), readers=frozenset({"Peek"}))

    def is_reserved(tool: str, arguments: JsonObject, clients: AgentProfiles) -> bool:
        context = replace(around(LinkedTree()), clients=clients)
        return why_reserved(tool, arguments, context, budget=full_budget()) is not None

    for clients, is_known in ((AgentProfiles([row]), True), (AgentProfiles([]), False)):
        assert is_reserved("files:write", {"path": ".newagent/policy.yaml"}, clients) is is_known
        assert is_reserved("files:move", {"path": ".newagent"}, clients) is is_known
        assert is_reserved("Bash", {"command": "rm .newagent/policy.yaml"}, clients) is is_known
        assert is_reserved("files:write", {"path": ".pml.json"}, clients)
        assert is_reserved("Bash", {"command": "rm .pml.json"}, clients)
        assert not is_reserved("Peek", {"path": ".newagent"}, clients)


def test_a_settings_file_that_would_not_be_found_is_no_row() -> None:
    with pytest.raises(ValueError, match="star"):
        AgentProfiles([AgentProfile(settings_files=("settings*.json",))])
