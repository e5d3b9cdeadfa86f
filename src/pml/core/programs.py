"""Programs of a server that may lie in the workspace: its command, and the scripts among its arguments.

Whoever can write the workspace can change them after a person trusted the command line that names them. Only
names are looked at here; what such a program loads besides is not known.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pml.core.servers import ServerSpec

_CODE: Final = frozenset(
    ".bash .bat .cjs .cmd .cts .exs .fish .jar .js .jsx .ksh .lua .mjs .mts .phar .php .pl .ps1 .py .pyc "
    ".pyz .r .rb .sh .ts .tsx .wasm .zsh".split()
)
_RUNS_A_FILE: Final = re.compile(
    r"(?:python|pypy)[0-9.]*|node|nodejs|ruby|perl|php|lua|Rscript|tsx|ts-node|(?:ba|da|z|k|fi)?sh|pwsh"
)


class ProgramNames(NamedTuple):
    """Paths of what a server may be made of, absolute. Of `perhaps` nothing but the shape says so."""

    certain: tuple[str, ...]
    perhaps: tuple[str, ...]


def program_names(spec: ServerSpec, *, cwd: str) -> ProgramNames:
    """Return the paths that the command line names; not all of them need to exist."""
    certain = [spec.command] if "/" in spec.command else []
    given = [name for text in spec.args for name in (text, text.partition("=")[2]) if name[:1] != "-"]
    certain += [name for name in given if posixpath.splitext(name)[1].lower() in _CODE]
    certain += _modules(spec)
    if _RUNS_A_FILE.fullmatch(posixpath.basename(spec.command).removesuffix(".exe")):
        certain += [text for text in spec.args if not text.startswith("-")][:1]
    perhaps = [name for name in given if "/" in name and not posixpath.splitext(name)[1]]
    return ProgramNames(_joined(cwd, certain), _joined(cwd, perhaps))


def _joined(cwd: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(posixpath.join(cwd, name) for name in names))


def _modules(spec: ServerSpec) -> Iterator[str]:
    """Yield the files that `python -m name` looks for where it is started, before it looks elsewhere."""
    for option, name in zip(spec.args, spec.args[1:], strict=False):
        if option == "-m":
            path = name.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")
