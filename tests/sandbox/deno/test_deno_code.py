"""TypeScript is made JavaScript once, and what is kept of it can be trusted."""

import os
from pathlib import Path

import pytest

from pml.core.code.sandbox import Ending
from pml.install.package_managers import find_deno
from pml.sandbox.deno.imports import find_import
from pml.sandbox.deno.sandbox import DenoSandbox
from tests.promises import promise
from tests.sandbox.deno_rig import run

CODE = "enum E { A = 41 }\nexport function run(args: { n: number }): number { return E.A + args.n }"


def noting_deno(folder: Path) -> tuple[str, Path]:
    """Return a Deno that notes which scripts it was asked to run, and where it notes them."""
    path, noted = folder / "deno", folder / "noted"
    path.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$last" >> {noted}\nexec {find_deno()} "$@"\n')
    path.chmod(0o700)
    noted.touch()
    return str(path), noted


def translations(noted: Path) -> int:
    return sum(line.endswith("stripper.js") for line in noted.read_text().splitlines())


async def test_code_is_translated_once_and_kept_for_its_user_only(tmp_path: Path) -> None:
    deno, noted = noting_deno(tmp_path)
    folder = tmp_path / "cache" / "code"
    for _ in range(2):
        sandbox = DenoSandbox(deno=lambda: deno, bwrap=lambda: None, cache=folder, ready=0)
        for _ in range(2):
            assert (await run(sandbox, CODE, export="run", args={"n": 1})).value == 42
        await sandbox.close()
    assert translations(noted) == 1
    (kept,) = folder.iterdir()
    assert (kept.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)


@promise("code:runs-what-was-given")
@pytest.mark.parametrize("damage", ["changed", "cut", "empty", "no text", "a folder"])
async def test_kept_code_that_was_damaged_is_made_anew(tmp_path: Path, damage: str) -> None:
    deno, noted = noting_deno(tmp_path)
    folder = tmp_path / "code"
    sandbox = DenoSandbox(deno=lambda: deno, bwrap=lambda: None, cache=folder, ready=0)
    await run(sandbox, CODE, export="run", args={"n": 1})
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    match damage:
        case "changed":
            kept.write_bytes(whole.replace(b"41", b"13"))
        case "cut":
            kept.write_bytes(whole[:-20])
        case "empty":
            kept.write_bytes(b"")
        case "no text":
            kept.write_bytes(b"\xff" * 100)
        case _:
            kept.unlink()
            kept.mkdir()
    assert (await run(sandbox, CODE, export="run", args={"n": 1})).value == 42
    assert translations(noted) == 2
    assert damage == "a folder" or kept.read_bytes() == whole
    await sandbox.close()


async def test_code_of_agents_and_code_that_is_wrong_is_not_kept(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    sandbox = DenoSandbox(deno=find_deno, bwrap=lambda: None, cache=folder, ready=0)
    assert (await run(sandbox, "return 1")).value == 1
    for code in ("export function run( {", "import 'x'; export function run() {}"):
        assert (await run(sandbox, code, export="run")).ended.how is Ending.SYNTAX
    assert not folder.exists()
    await sandbox.close()


async def test_a_folder_that_cannot_be_written_hinders_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sandbox = DenoSandbox(deno=find_deno, bwrap=lambda: None, cache=tmp_path / "file" / "code", ready=0)
    assert (await run(sandbox, CODE, export="run", args={"n": 1})).value == 42
    await sandbox.close()


async def test_code_that_is_no_text_is_refused(tmp_path: Path) -> None:
    sandbox = DenoSandbox(deno=find_deno, bwrap=lambda: None, cache=tmp_path, ready=0)
    for code in ("return '\ud800'", "\0"):
        assert (await run(sandbox, code)).ended.how is Ending.SYNTAX
    assert (await run(sandbox, "return '\u2028\\u2028'.length // \u2028\n")).value == 2
    await sandbox.close()


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("import x from 'y'", (1, 1)),
        ("let a;\n  import 'y'", (2, 3)),
        ("import{x}from'y'", (1, 1)),
        ("import*as x from 'y'", (1, 1)),
        ("a(import/* why */\n('y'))", (1, 3)),
        ("`a ${import('x')} b`", (1, 6)),
        ("`${`${'}'}${import('x')}`}`", (1, 13)),
        ("a = b / c; import('x') / 2", (1, 12)),
        ("return /[/'\"]/.test(a) + import('q')", (1, 26)),
        ("a.import('x'); b?.import('y'); c.#import('z')", None),
        ("({ import: 1 }).import", None),
        ("import.meta.url", None),
        ("'import(1)' + \"import(2)\" + `import(3)`", None),
        ("// import('x')\n/* import('y') */", None),
        ("/import('x')/.test(y)", None),
        ("important(1); $import(2)", None),
    ],
)
def test_imports_are_found_by_their_place(code: str, place: tuple[int, int] | None) -> None:
    assert find_import(code) == place


@pytest.mark.parametrize("piece", ["'\\'", "/*", "=/[a", "`${", "((", "/", "\\", '"'])
def test_no_text_takes_long_to_search(piece: str) -> None:
    find_import("x.import " + piece * 50_000)


def test_the_scripts_are_part_of_the_package() -> None:
    from pml.sandbox.deno.command import script

    assert all(os.path.isfile(script(name)) for name in ("runner.js", "stripper.js"))
