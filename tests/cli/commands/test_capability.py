"""`pml capability`: what it writes, what it finds wrong, and what is needed."""

import json
from pathlib import Path
from typing import Any

import pytest

from pml.core.names import parse_tool
from tests.commands import Pml
from tests.registry.places import fill

OK, FAILED, USAGE, GONE = 0, 1, 2, 5


def put(folder: Path, code: str, *, suffix: str = ".ts", fqdn: str = "acme.tools.x", **more: Any) -> str:
    """Write a capability and return the path of its code."""
    kind = "python" if suffix == ".py" else "deno"
    metadata = {"fqdn": fqdn, "type": kind, "tools": ["run"], **more}
    (folder / f"{fqdn}.json").write_text(json.dumps(metadata))
    (folder / f"{fqdn}{suffix}").write_text(code)
    return f"{fqdn}{suffix}"


def checked(pml: Pml, *paths: str) -> Any:
    """Return what `check` tells of one capability."""
    [report] = pml("capability", "check", *paths, "--json").json["checked"]
    return report


def messages(report: Any) -> list[str]:
    return [problem["message"] for problem in report["problems"]]


# --- new


def test_a_new_capability_type_checks_and_can_be_published(pml: Pml, workspace: Path) -> None:
    ran = pml("capability", "new", "acme.tools.clock.now", "--use", "time", "--use", "memory", "--json")
    names = ["acme.tools.clock.now.ts", "acme.tools.clock.now.json", "mcp.d.ts"]
    assert (ran.code, ran.json) == (
        OK,
        {"fqdn": "acme.tools.clock.now", "tool": "clock:now", "written": names},
    )
    assert "export async function now(args: Args, { mcp }: Context)" in (workspace / names[0]).read_text()
    assert "get_current_time(args: { timezone: string })" in (workspace / names[2]).read_text()
    report = checked(pml, names[0])
    assert (report["ok"], report["problems"]) == (True, [])
    assert report["warnings"] == ["its description is still the template's: tell what it does"]
    assert [tool["verdict"] for tool in report["tools"]] == ["unlisted"]
    assert pml("publish", names[1], "--to", "registry").code == OK


def test_a_new_capability_in_python_is_sound(pml: Pml, workspace: Path) -> None:
    ran = pml(
        "capability", "new", "acme.tools.clock", "--language", "python", "--use", "time", "--dir", "a/b"
    )
    assert ran.code == OK
    assert (
        (workspace / "a/b/acme.tools.clock.py")
        .read_text()
        .endswith("async def run(args, mcp):\n    return await mcp.time.get_current_time(args)\n")
    )
    report = checked(pml, "a/b/acme.tools.clock.json")
    assert (report["ok"], report["tools"]) == (
        True,
        [{"tool": "time:get_current_time", "verdict": "unlisted"}],
    )


def test_new_changes_no_file_that_is_there(pml: Pml, workspace: Path) -> None:
    pml("capability", "new", "acme.tools.hello")
    (workspace / "mcp.d.ts").write_text("mine")
    before = {path: path.read_bytes() for path in workspace.iterdir()}
    ran = pml("capability", "new", "acme.tools.hello", "--language", "python")
    assert (ran.code, ran.err.splitlines()[0]) == (FAILED, "pml: `acme.tools.hello.ts` is there already")
    assert {path: path.read_bytes() for path in workspace.iterdir()} == before
    other = pml("capability", "new", "acme.tools.other")
    assert (other.code, "kept mcp.d.ts" in other.out) == (OK, True)
    assert (workspace / "mcp.d.ts").read_text() == "mine"


@pytest.mark.parametrize("language", ["typescript", "python"])
def test_a_second_capability_in_a_folder_passes_its_own_check_and_spoils_no_other(
    pml: Pml, workspace: Path, language: str
) -> None:
    pml("capability", "new", "acme.tools.one", "--use", "time", "--dir", "cap")
    new = ["capability", "new", "acme.tools.two", "--use", "memory", "--use", "git", "--dir", "cap"]
    assert pml(*new, "--language", language).code == OK
    ran = pml("capability", "check", "cap", "--json")
    assert (ran.code, [messages(report) for report in ran.json["checked"]]) == (OK, [[], []])
    declared = (workspace / "cap/mcp.d.ts").read_text()
    assert [f"  {name}: {{" in declared for name in ("time", "memory", "git")] == [True, True, True]
    [code] = [path for path in (workspace / "cap").glob("*two.*") if path.suffix != ".json"]
    mark = {"typescript": "//", "python": "#"}[language]
    assert f'{mark} await mcp.git.git_diff_staged({{"repo_path": …}})' in code.read_text()


def test_a_link_in_place_of_the_types_is_not_followed(pml: Pml, workspace: Path) -> None:
    mine = workspace / "mine.ts"
    (workspace / "mcp.d.ts").symlink_to(mine)
    assert "kept mcp.d.ts" in pml("capability", "new", "acme.tools.x", "--use", "time").out
    assert (mine.exists(), (workspace / "mcp.d.ts").is_symlink()) == (False, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nonsense",), USAGE, "expected `org.project.namespace.action`"),
        (("acme.tools.x", "--use", "memry"), GONE, "did you mean `memory`?"),
        (("acme.tools.x", "--use", "zzz"), GONE, "there are "),
    ],
)
def test_new_refuses_what_it_cannot_name_or_find(
    pml: Pml, workspace: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    ran = pml("capability", "new", *words)
    assert (ran.code, said in ran.err) == (code, True)
    assert not [*workspace.iterdir()]


def test_a_configured_server_that_never_started_is_not_started_for_its_types(
    pml: Pml, workspace: Path, pml_home: Path
) -> None:
    mark = workspace / "started"
    pml_home.mkdir()
    servers = {"odd": {"command": "/bin/sh", "args": ["-c", f"touch {mark}"]}}
    (pml_home / "config.json").write_text(json.dumps({"version": "0.1.0", "mcpServers": servers}))
    ran = pml("capability", "new", "acme.tools.x", "--use", "odd")
    assert (ran.code, "not known before its first start" in ran.err) == (GONE, True)
    assert not mark.exists()


# --- types


def test_types_are_written_for_what_the_code_calls(pml: Pml, workspace: Path) -> None:
    put(workspace, "export const run = (args, { mcp }) => mcp.time.get_current_time(args)")
    put(
        workspace, "async def run(args, mcp):\n    await mcp.git.git_log()", suffix=".py", fqdn="acme.tools.y"
    )
    ran = pml("capability", "types", "--use", "memory", "--json")
    assert (ran.code, ran.json) == (OK, {"written": "mcp.d.ts", "servers": ["memory", "time", "git"]})
    assert pml("capability", "types").code == OK
    assert "memory" not in (workspace / "mcp.d.ts").read_text()


def test_types_that_pml_did_not_write_stay(pml: Pml, workspace: Path) -> None:
    (workspace / "mcp.d.ts").write_text("mine")
    ran = pml("capability", "types", "--use", "time")
    assert (ran.code, "was not made by PML" in ran.err) == (FAILED, True)
    assert (workspace / "mcp.d.ts").read_text() == "mine"


def test_types_of_nothing_are_not_written(pml: Pml, workspace: Path) -> None:
    assert pml("capability", "types").code == GONE
    assert not [*workspace.iterdir()]


# --- check


def test_errors_in_typescript_are_told_where_the_author_wrote_them(pml: Pml, workspace: Path) -> None:
    code = (
        'import type { Context } from "./mcp.d.ts";\n'
        "export async function run(args: { path: string }, { mcp }: Context) {\n"
        "  const n: number = args.path;\n"
        "  Deno.exit(n); await fetch('http://example.com');\n"
        "  return await mcp.time.get_current_time({ timezon: 'UTC' });\n"
        "}\n"
    )
    path = put(workspace, code)
    ran = pml("capability", "check", path)
    assert ran.code == FAILED
    told = [line for line in ran.err.splitlines() if line.startswith(path)]
    assert [line.split(": ")[0] for line in told] == [
        f"{path}:3:9",
        f"{path}:4:3",
        f"{path}:4:23",
        f"{path}:5:44",
    ]
    assert told[0].endswith("Type 'string' is not assignable to type 'number'.")
    assert told[1].endswith("Cannot find name 'Deno'.")
    assert not [each for each in workspace.iterdir() if "cache" in each.name]


def test_plain_javascript_with_all_that_the_sandbox_has_is_sound(pml: Pml, workspace: Path) -> None:
    code = (
        "export async function run(args, { mcp }) {\n"
        "  await new Promise((done) => setTimeout(done, 10));\n"
        "  console.log(crypto.randomUUID(), new URL('x:y').href, performance.now(), structuredClone(args));\n"
        "  try { return await mcp.time.get_current_time(args); }\n"
        "  catch (error) { if (error instanceof ToolError) return error.code; throw error; }\n"
        "}\n"
    )
    assert messages(checked(pml, put(workspace, code))) == []


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        (
            "import type { Context } from './mcp.d.ts';\nimport x from 'https://example.com/x.ts'",
            2,
            "cannot import",
        ),
        ("export const run = async () => await import('node:fs')", 1, "cannot import"),
    ],
)
def test_an_import_is_told_without_a_request(
    pml: Pml, workspace: Path, code: str, line: int, said: str
) -> None:
    report = checked(pml, put(workspace, code))
    problem = report["problems"][0]
    assert (problem["line"], said in problem["message"]) == (line, True)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def run(:", {"line": 1, "column": 9}),
        ("async def run(args, mcp):\n    return nothing", {"line": 2, "column": 12}),
        ("def g():\n    yield 1\nasync def run(args, mcp): pass", {"line": 2, "column": 5}),
        ("while True: pass", {"line": None, "column": None}),
    ],
)
def test_errors_in_python_are_told_where_the_author_wrote_them(
    pml: Pml, workspace: Path, code: str, problem: dict[str, int | None]
) -> None:
    path = put(workspace, code, suffix=".py")
    found = checked(pml, path)["problems"][0]
    assert {key: found[key] for key in problem} == problem


def test_what_a_capability_needs_is_told_with_the_verdicts_of_the_workspace(
    pml: Pml, workspace: Path
) -> None:
    pml("init")
    pml("rules", "deny", "memory:*", "--user")
    pml("rules", "allow", "time:get_*", "--user")
    pml("rules", "ask", "git:*", "--user")
    code = (
        "async def run(args, mcp):\n"
        "    await mcp.time.get_current_time(args)\n"
        "    await mcp.memory.read_graph()\n"
        "    await mcp.git.git_log(args)\n"
        "    await mcp.notes.add(args)\n"
        "    await mcp[args['server']].x()\n"
    )
    notes = {
        "name": "notes",
        "type": "stdio",
        "install": "npx @acme/notes@1.0.0",
        "version": "1.0.0",
        "env_required": ["NOTES_TOKEN"],
        "permissions": {"net": ["notes.example.com"]},
    }
    path = put(workspace, code, suffix=".py", mcp_deps=[notes])
    report = checked(pml, path)
    assert report["problems"] == []
    assert report["tools"] == [
        {"tool": "time:get_current_time", "verdict": "allow"},
        {"tool": "memory:read_graph", "verdict": "deny"},
        {"tool": "git:git_log", "verdict": "ask"},
        {"tool": "notes:add", "verdict": "unlisted"},
    ]
    assert [server["name"] for server in report["servers"]] == ["notes", "time", "git"]
    assert (report["dynamic"], report["variables_missing"]) == (True, ["NOTES_TOKEN"])
    told = pml("capability", "check", path)
    assert told.code == OK
    assert "also calls tools that cannot be told beforehand" in told.out
    assert '{"net": ["notes.example.com"], "workspace": "none"}' in told.out
    assert "memory:read_graph is denied here" in told.err


def test_tools_that_nobody_offers_are_problems(pml: Pml, workspace: Path) -> None:
    code = "async def run(args, mcp):\n    await mcp.memry.x()\n    await mcp.time.get_curent_time()\n"
    report = checked(pml, put(workspace, code, suffix=".py"))
    assert messages(report) == [
        "`memry` is neither a dependency, configured, in the catalog nor a capability; "
        "did you mean `memory`?",
        "no tool `time:get_curent_time`; did you mean `time:get_current_time`?",
    ]


def test_another_capability_of_the_registry_is_known(pml: Pml, workspace: Path, pml_home: Path) -> None:
    folder = fill(workspace / "registry")
    pml_home.mkdir()
    (pml_home / "config.json").write_text(json.dumps({"version": "0.1.0", "registry": str(folder)}))
    code = f"async def run(args, mcp):\n    await mcp.{parse_tool('text:greet').namespace}.greet()\n"
    assert messages(checked(pml, put(workspace, code, suffix=".py"))) == []


def test_a_tool_that_nothing_serves_is_a_problem(pml: Pml, workspace: Path) -> None:
    path = put(workspace, "async def other(args, mcp): pass", suffix=".py", tools=["go"])
    assert messages(checked(pml, path)) == ["nothing serves `x:go`: expected `async def` `go` or `run`"]


def test_a_function_that_is_not_exported_is_told_with_its_place(pml: Pml, workspace: Path) -> None:
    path = put(workspace, "// function go() {}\nasync function go() {}\n", tools=["go"])
    [problem] = checked(pml, path)["problems"]
    said = "nothing serves `x:go`: `go` is not exported; write `export` before it"
    assert problem == {"message": said, "file": path, "line": 2, "column": 16}


def test_a_tool_that_nobody_offers_is_told_once_in_typescript_with_its_place(
    pml: Pml, workspace: Path
) -> None:
    code = (
        'import type { Context } from "./mcp.d.ts";\n'
        "export async function run(args: { a: string }, { mcp }: Context) {\n"
        "  // mcp.time.get_curent_time() is no call\n"
        "  await mcp.memry.x();\n"
        "  return await mcp.time.get_curent_time();\n"
        "}\n"
    )
    problems = checked(pml, put(workspace, code))["problems"]
    told = [(each["line"], each["column"], each["message"].split("`")[1]) for each in problems]
    assert told == [(4, 9, "memry"), (5, 16, "time:get_curent_time")]


def test_types_that_are_out_of_date_are_told_with_the_command_that_writes_them(
    pml: Pml, workspace: Path
) -> None:
    pml("capability", "new", "acme.tools.one", "--use", "time", "--dir", "my cap")
    code = (
        'import type { Context } from "./mcp.d.ts";\n'
        "export const run = (args: {}, { mcp }: Context) => mcp.memory.read_graph();\n"
    )
    path = f"my cap/{put(workspace / 'my cap', code)}"
    [message] = messages(checked(pml, path))
    assert message.endswith("does not exist on type 'Mcp'. → pml capability types --dir 'my cap'")
    assert pml("capability", "types", "--dir", "my cap").code == OK
    assert messages(checked(pml, path)) == []


def test_calls_of_a_server_that_it_brings_along_are_said_to_be_unchecked(pml: Pml, workspace: Path) -> None:
    notes = {"name": "notes", "type": "stdio", "install": "npx @acme/notes@1.0.0", "version": "1.0.0"}
    code = (
        'import type { Context } from "./mcp.d.ts";\n'
        "export const run = (args: {}, { mcp }: Context) => mcp.notes.add(args);\n"
    )
    report = checked(pml, put(workspace, code, mcp_deps=[notes]))
    assert messages(report) == []
    said = "nothing is known of the tools of `notes`: calls of them were not checked"
    assert report["warnings"] == [f"acme.tools.x.ts:2:56: {said}"]


def test_arguments_in_python_are_compared_with_what_the_tool_takes(pml: Pml, workspace: Path) -> None:
    code = (
        "async def run(args, mcp):\n"
        "    await mcp.time.get_current_time(timezon='UTC')\n"
        "    await mcp.time.get_current_time({'timezone': 'UTC'})\n"
        "    await mcp.time.get_current_time(args)\n"
        "    await mcp.time.get_current_time(**args)\n"
    )
    report = checked(pml, put(workspace, code, suffix=".py"))
    assert (report["problems"], report["warnings"]) == (
        [],
        [
            "acme.tools.x.py:2:11: time:get_current_time needs `timezone`",
            "acme.tools.x.py:2:11: time:get_current_time does not take `timezon`; did you mean `timezone`?",
        ],
    )


@pytest.mark.parametrize(
    ("suffix", "code", "place"),
    [
        (".ts", "export async function run(args, { mcp }) {\n  mcp.memory.read_graph();\n}", "2:3"),
        (".py", "async def run(args, mcp):\n    mcp.memory.read_graph()\n", "2:5"),
    ],
)
def test_a_call_that_is_not_awaited_is_told(
    pml: Pml, workspace: Path, suffix: str, code: str, place: str
) -> None:
    path = put(workspace, code, suffix=suffix)
    said = "memory:read_graph is not awaited: the run waits for it, but its result and its error are lost"
    assert checked(pml, path)["warnings"] == [f"{path}:{place}: {said}"]


def test_after_a_syntax_error_nothing_is_said_of_calls(pml: Pml, workspace: Path) -> None:
    ran = pml(
        "capability", "check", put(workspace, "async def run(args, mcp:\n  await mcp.a.b()", suffix=".py")
    )
    assert (ran.code, ran.out) == (FAILED, "acme.tools.x  HAS PROBLEMS\n")


def test_what_this_python_lacks_is_told_beside_wrong_types_and_in_plain_words(
    pml: Pml, workspace: Path
) -> None:
    code = "x: int = 'a'\nclass A:\n    y = 1\nclass B(A):\n    z = 2\nasync def run(args, mcp): pass\n"
    first, second = checked(pml, put(workspace, code, suffix=".py"))["problems"]
    assert (first["line"], first["message"]) == (
        4,
        "class inheritance and metaclasses: not available in this Python",
    )
    assert (second["line"], "is not assignable" in second["message"]) == (1, True)


def test_a_long_type_is_cut_in_what_typescript_says(pml: Pml, workspace: Path) -> None:
    fields = "; ".join(f"field{n}: string" for n in range(40))
    code = (
        f"type Long = {{ {fields} }};\nexport const run = (args: {{ a: {{ {fields} }} }}) => args.a.other;\n"
    )
    [message] = messages(checked(pml, put(workspace, code)))
    assert message.startswith("Property 'other' does not exist on type '{ field0: string;")
    assert (len(message) < 120, message.endswith("…'.")) == (True, True)


def test_a_folder_is_checked_whole_and_each_capability_once(pml: Pml, workspace: Path) -> None:
    put(workspace, "async def run(args, mcp): pass", suffix=".py", fqdn="acme.tools.a")
    put(workspace, "async def go(args, mcp): pass", suffix=".py", fqdn="acme.tools.b")
    ran = pml("capability", "check", ".", "acme.tools.a.json", "acme.tools.a.py", "--json")
    assert (ran.code, [each["ok"] for each in ran.json["checked"]]) == (FAILED, [True, False])


@pytest.mark.parametrize("path", ["mcp.d.ts", "empty"])
def test_where_there_is_no_capability_it_is_said_what_is_expected(
    pml: Pml, workspace: Path, path: str
) -> None:
    (workspace / "empty").mkdir()
    (workspace / "mcp.d.ts").write_text("")
    ran = pml("capability", "check", path)
    assert (ran.code, "its code (`.ts`, `.py`), its metadata (`.json`)" in ran.err) == (USAGE, True)


def test_code_without_metadata_is_told(pml: Pml, workspace: Path) -> None:
    (workspace / "x.ts").write_text("export const run = () => 1")
    [message] = messages(checked(pml, "x.ts"))
    assert message.startswith("`x.json` is not there: the metadata of `x.ts`")


def test_metadata_that_is_not_sound_is_told_with_its_field(pml: Pml, workspace: Path) -> None:
    path = put(workspace, "", type="perl")
    ran = pml("capability", "check", path, "missing.ts", "mcp.d.ts", "README.md")
    assert ran.code == FAILED
    first, second, third = (line for line in ran.err.splitlines() if not line.startswith("checking"))
    assert "`type`" in first
    assert second.startswith("missing.ts: `missing.ts` and `missing.json` are not there (")
    assert third.startswith("README.md: is not a capability")
