"""`pml publish`: what it prints and how it ends."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from pml.cli.commands.publish import publish_with
from pml.core.packages.lock import lock_json
from tests.commands import Pml
from tests.promises import promise
from tests.registry.places import CODE, GREET, hash_of, metadata
from tests.registry.test_publishing import Resolver, lock_of, server, sha512


def draft(workspace: Path, content: Any, *, code: bytes | None = None) -> Path:
    path = workspace / "draft.json"
    path.write_text(json.dumps(content))
    if code is not None:
        path.with_suffix(".ts").write_bytes(code)
    return path


def test_code_is_published_and_told(pml: Pml, workspace: Path) -> None:
    draft(workspace, metadata(), code=CODE)
    ran = pml("publish", "draft.json", "--to", "registry", "--json")
    assert (ran.code, ran.json) == (
        0,
        {
            "published": [
                {
                    "fqdn": GREET,
                    "status": "created",
                    "path": f"registry/{GREET}.json",
                    "code_path": f"registry/{GREET}.ts",
                    "code_integrity": hash_of(CODE),
                    "dependencies": [],
                }
            ]
        },
    )
    again = pml("publish", "draft.json", "--to", "registry")
    assert (again.code, again.out.splitlines()) == (
        0,
        [
            f"unchanged registry/{GREET}.json",
            f'use it with "registry": "{workspace / "registry"}" in .pml.json or in the user\'s config.json',
            "  or serve it: pml cloud --folder registry",
        ],
    )


def test_other_content_is_refused_with_the_way_to_do_it(pml: Pml, workspace: Path) -> None:
    draft(workspace, metadata(), code=CODE)
    pml("publish", "draft.json", "--to", "registry")
    draft(workspace, metadata(description="other"))
    ran = pml("publish", "draft.json", "--to", "registry")
    assert ran.code == 1
    assert "--replace" in ran.err
    assert pml("publish", "draft.json", "--to", "registry", "--replace").code == 0


def test_a_server_is_published_with_the_lock_it_has(pml: Pml, workspace: Path) -> None:
    draft(workspace, server(lock=lock_json(lock_of())))
    ran = pml("publish", "draft.json", "--to", "registry")
    assert ran.code == 0
    assert "memory@1.2.3: 2 packages, sha512-" in ran.out


async def test_a_server_is_published_with_the_lock_that_is_found(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft(workspace, server())
    args = argparse.Namespace(source="draft.json", to="registry", check=False, replace=False, json=True)
    assert await publish_with(args, Resolver()) == 0
    (published,) = json.loads(capsys.readouterr().out)["published"]
    assert published["dependencies"] == [
        {"name": "memory", "version": "1.2.3", "integrity": sha512("memory"), "lock": lock_of().digest}
    ]


def test_checking_writes_nothing(pml: Pml, workspace: Path) -> None:
    draft(workspace, server())
    before = sorted(workspace.iterdir())
    ran = pml("publish", "draft.json", "--check", "--json")
    assert (ran.code, ran.json) == (0, {"checked": [{"fqdn": "acme.tools.memory", "path": "draft.json"}]})
    assert "sound" in pml("publish", "draft.json", "--check", "--to", "registry").out
    assert sorted(workspace.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "words", "code", "problem"),
    [
        (metadata(type="other"), ["--to", "registry"], 2, "type"),
        (metadata(), ["--check"], 2, "draft.ts"),
        (metadata(fqdn="a"), ["--check"], 2, "fqdn"),
        (metadata(code_integrity="sha256-AAAA"), ["--check"], 2, "code_integrity"),
        (server(), [], 2, "--to"),
    ],
)
def test_what_is_not_sound_is_told_with_its_place(
    pml: Pml, workspace: Path, content: Any, words: list[str], code: int, problem: str
) -> None:
    draft(workspace, content)
    ran = pml("publish", "draft.json", *words)
    assert ran.code == code
    assert problem in ran.err
    assert not (workspace / "registry").exists()


BROKEN = [
    (".ts", "export const greet = () => { const b = ; }", "draft.ts:1:40: Expression expected"),
    (".ts", 'import fs from "node:fs";\nexport const greet = () => 1;', "draft.ts:1:1: code cannot import"),
    (".ts", "\nfunction greet() {}", "draft.ts:2:10: nothing serves `text:greet`"),
    (".ts", "export const other = 1;", "draft.ts: nothing serves `text:greet`"),
    (".py", "def greet(:", "draft.py:1:11: "),
    (".py", "import requests\ndef greet(args, mcp): pass", "draft.py:1:8: Cannot resolve imported module"),
    (".py", "def greet(args, mcp):\n    yield 1", "draft.py:2:5: "),
    (".py", "1 / 0\ndef greet(args, mcp): pass", "draft.py:1:1: ZeroDivisionError"),
    (".py", "def other(args, mcp): pass", "draft.py: nothing serves `text:greet`"),
]


@promise("publish:sound-code")
@pytest.mark.parametrize(("suffix", "code", "said"), BROKEN)
@pytest.mark.parametrize("words", [["--to", "registry"], ["--check"]])
def test_code_that_runs_nowhere_is_not_published(
    pml: Pml, workspace: Path, suffix: str, code: str, said: str, words: list[str]
) -> None:
    path = draft(workspace, metadata(type="python" if suffix == ".py" else "deno"))
    path.with_suffix(suffix).write_text(code)
    ran = pml("publish", "draft.json", *words)
    assert (ran.code, [line for line in ran.err.splitlines() if line.startswith(said)] != []) == (2, True)
    assert not (workspace / "registry").exists()


def test_one_that_is_broken_keeps_all_from_being_published(pml: Pml, workspace: Path) -> None:
    for name, code in (("a", "def greet(args, mcp): pass"), ("b", "def greet(:")):
        content = metadata(f"acme.tools.text.{name}", type="python")
        (workspace / f"{name}.json").write_text(json.dumps(content))
        (workspace / f"{name}.py").write_text(code)
    ran = pml("publish", ".", "--to", "registry", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (2, "invalid")
    assert {problem["file"] for problem in ran.json["problems"]} == {"b.py"}
    assert not (workspace / "registry").exists()


def test_wrong_types_and_unknown_tools_are_warnings(pml: Pml, workspace: Path) -> None:
    code = (
        b"export async function greet(args, { mcp }) {\n"
        b"  const n: number = 'a';\n"
        b"  return [n, await mcp.time.get_curent_time()];\n"
        b"}\n"
    )
    draft(workspace, metadata(), code=code)
    ran = pml("publish", "draft.json", "--to", "registry")
    assert (ran.code, (workspace / f"registry/{GREET}.ts").read_bytes()) == (0, code)
    assert "warning: draft.ts:2:9: Type 'string' is not assignable to type 'number'." in ran.err
    assert "warning: draft.ts:3:20: no tool `time:get_curent_time`" in ran.err


def test_code_is_published_with_the_metadata_beside_it(pml: Pml, workspace: Path) -> None:
    draft(workspace, metadata(), code=CODE)
    assert pml("publish", "draft.ts", "--to", "registry").code == 0
    assert (workspace / f"registry/{GREET}.json").exists()
    (workspace / "draft.py").write_text("")
    other = pml("publish", "draft.py", "--to", "registry")
    assert (other.code, "its `type` is `deno`" in other.err) == (2, True)
    (workspace / "alone.ts").write_bytes(CODE)
    alone = pml("publish", "alone.ts", "--to", "registry")
    assert (alone.code, "`alone.json` is not there: the metadata of `alone.ts`" in alone.err) == (5, True)


def test_nothing_there_is_told(pml: Pml) -> None:
    assert pml("publish", "none.json", "--to", "registry").code == 5
