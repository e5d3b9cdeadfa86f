"""The folder that uv filled, made a server: the packages of the lock, compiled, and their starters.

A starter is a small program for the bare interpreter, which sees the standard library and this folder and
nothing else of the machine's. No path of the machine is in any file, so the folder may be moved.
"""

import importlib.metadata
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pml.core.errors import Invalid
from pml.core.packages.package import Ecosystem, normal_name
from pml.core.text import quote

SITE: Final = "site"
STARTERS: Final = "start"

_SCRIPTS: Final = ("bin", "Scripts")  # where uv puts programs, by system
_SCRIPT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TARGET: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)(?:\s*\[.*\])?", re.ASCII)
_STARTER: Final = '''\
"""Starts `{script}`. Written when the server was installed, and one of the files that are proven."""

import os
import site
import sys

if sys.version_info[:2] != {version!r}:
    sys.exit("the server was installed for Python {dotted}: reinstall it with `pml deps install`")
site.addsitedir(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), {folder!r}))

if __name__ == "__main__":
    from functools import reduce
    from importlib import import_module

    site.setquit()
    sys.argv[0] = {script!r}
    sys.exit(reduce(getattr, {attributes!r}, import_module({module!r}))())
'''


def tidy(site: Path) -> None:
    """Remove what uv leaves beside the packages: its lock, and scripts that name a path of this machine."""
    (site / ".lock").unlink(missing_ok=True)
    generated = {name for found in _distributions(site) for name in console_scripts(found)}
    for folder in (site / name for name in _SCRIPTS):
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_file() and (path.stem in generated or path.name in generated or _has_shebang(path)):
                path.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def distribution(site: Path, name: str) -> importlib.metadata.Distribution:
    """Return the installed distribution called `name`. Raises: Invalid."""
    found = [one for one in _distributions(site) if _normal(one.name) == _normal(name)]
    if len(found) != 1:
        raise Invalid(f"{quote(name)} is installed {len(found)} times, expected once")
    return found[0]


def console_scripts(found: importlib.metadata.Distribution) -> dict[str, str]:
    """Return the programs of a distribution: name, and `module:function`."""
    points = found.entry_points.select(group="console_scripts")
    return {point.name: point.value for point in points if _SCRIPT.fullmatch(point.name)}


def write_starters(tree: Path, scripts: Mapping[str, str]) -> None:
    """Write a starter for each of `scripts`. Raises: Invalid for one that names no function."""
    folder = tree / STARTERS
    folder.mkdir()
    for script, value in scripts.items():
        target = _TARGET.fullmatch(value)
        if target is None:
            raise Invalid(f"the program {quote(script)} of the package names no function: {quote(value)}")
        text = _STARTER.format(
            script=script,
            version=sys.version_info[:2],
            dotted=".".join(map(str, sys.version_info[:2])),
            folder=SITE,
            module=target[1],
            attributes=target[2].split("."),
        )
        (folder / f"{script}.py").write_text(text, encoding="utf-8", newline="\n")


def choose_script(scripts: Sequence[str], *, package: str, tool: str | None) -> str:
    """Return which program of the package is the server. Raises: Invalid with those that there are."""
    wanted = [tool] if tool is not None else [name for name in scripts if is_called(name, package)]
    if tool is None and len(scripts) == 1:
        wanted = list(scripts)
    if len(wanted) == 1 and wanted[0] in scripts:
        return wanted[0]
    shown = ", ".join(quote(name) for name in scripts[:10]) or "none"
    sought = quote(tool) if tool is not None else "called like the package"
    raise Invalid(
        f"{quote(package)} has no program {sought}; it has {shown}",
        hint="name it in `install`, as `uvx --from name==1.2.3 PROGRAM`" if scripts else None,
    )


def is_called(script: str, package: str) -> bool:
    """Tell whether a program has the name of its package."""
    return _normal(script) == _normal(package)


def compile_arguments(tree: Path) -> tuple[str, ...]:
    """Return the interpreter's arguments that compile the folder: the same files give the same bytes."""
    # Paths are stripped from the bytecode. It is proven together with its source, so nothing compares them.
    return (
        *("-I", "-S", "-B", "-m", "compileall", "-q", "-f", "-j", "0"),  # on all cores
        *("--invalidation-mode", "unchecked-hash", "-s", str(tree), str(tree / SITE)),
    )


def _distributions(site: Path) -> list[importlib.metadata.Distribution]:
    found = list(importlib.metadata.distributions(path=[str(site)]))
    if any("Name" not in one.metadata for one in found):
        raise Invalid("the package brings a distribution without a name")
    return found


def _has_shebang(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _normal(name: str) -> str:
    return normal_name(name, Ecosystem.PYPI)
