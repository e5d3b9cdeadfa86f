"""`pml publish`: what it prints and how it ends."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from pml.cli.publish import publish_with
from pml.core.locks import lock_json
from tests.commands import Pml
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


def test_nothing_there_is_told(pml: Pml) -> None:
    assert pml("publish", "none.json", "--to", "registry").code == 5
