"""Programs of servers on disk: the hashes of those that lie in the workspace, or are reached through it."""

import hashlib
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pml.core.digest import digest
from pml.core.rules.readings import is_under
from pml.core.servers.process_launch import ProcessLaunch, steering
from pml.core.servers.remote_target import RemoteTarget, shown_url
from pml.core.servers.spec import Target
from pml.core.text import visible_json

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


def program_names(launch: ProcessLaunch, *, cwd: str) -> ProgramNames:
    """Return the paths that the command line names; not all of them need to exist."""
    certain = [launch.command] if "/" in launch.command else []
    given = [name for text in launch.args for name in (text, text.partition("=")[2]) if name[:1] != "-"]
    certain += [name for name in given if posixpath.splitext(name)[1].lower() in _CODE]
    certain += _modules(launch)
    if _RUNS_A_FILE.fullmatch(posixpath.basename(launch.command).removesuffix(".exe")):
        certain += [text for text in launch.args if not text.startswith("-")][:1]
    perhaps = [name for name in given if "/" in name and not posixpath.splitext(name)[1]]
    return ProgramNames(_joined(cwd, certain), _joined(cwd, perhaps))


def expanded_parts(launch: Target) -> Mapping[str, str]:
    """Return digests of the parts of the entry that decide what is started, where they have variables.

    Another value is another program, though the file is the same. The rest of the server's environment is its
    own affair: a token may change.
    """
    if isinstance(launch, RemoteTarget):
        remote = launch.written
        text = None if remote is None else shown_url(remote.url)
        return {f"url {visible_json(text, indent=None)}": digest(launch.url)} if text and "${" in text else {}
    entry = launch.written
    if entry is None:
        return {}
    parts = {
        "command": (entry.command, launch.command),
        "args": (entry.args, launch.args),
        "cwd": (entry.cwd, launch.cwd),
        **{f"env.{name}": (entry.env[name], launch.env[name]) for name in steering(entry.env)},
    }
    texts = {key: (visible_json(written, indent=None), now) for key, (written, now) in parts.items()}
    return {f"{key} {text}": digest(now) for key, (text, now) in texts.items() if "${" in text}


def _joined(cwd: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(posixpath.join(cwd, name) for name in names))


def _modules(launch: ProcessLaunch) -> Iterator[str]:
    """Yield the files that `python -m name` looks for where it is started, before it looks elsewhere."""
    for option, name in zip(launch.args, launch.args[1:], strict=False):
        if option == "-m":
            path = name.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py")


_PIECE: Final = 1024 * 1024
_UNREADABLE: Final = "unreadable"


def programs_in(workspace: str, launch: Target) -> Mapping[str, str]:
    """Return the hash of each program of the server in the workspace, by path; `-`: it is not there.

    Beside them, the parts of its entry that variables decide.
    """
    if isinstance(launch, RemoteTarget):
        return expanded_parts(launch)
    real_workspace = os.path.realpath(workspace)
    found = {
        path: _hash(path)
        for path in map(os.path.normpath, _paths(workspace, launch))
        if is_under(path, workspace) or is_under(os.path.realpath(path), real_workspace)
        if not os.path.isdir(path)
    }
    return {**found, **expanded_parts(launch)}


def _paths(workspace: str, launch: ProcessLaunch) -> Iterator[str]:
    names = program_names(launch, cwd=launch.cwd or workspace)
    yield from names.certain
    yield from filter(os.path.isfile, names.perhaps)
    if "/" not in launch.command:
        searched = shutil.which(launch.command, path=launch.env.get("PATH"))
        if searched is not None and os.path.isabs(searched):
            yield searched


def _hash(path: str) -> str:
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return _UNREADABLE
            found = hashlib.sha256()
            while piece := file.read(_PIECE):
                found.update(piece)
    except FileNotFoundError:
        return "-"
    except OSError:
        return _UNREADABLE
    return f"sha256:{found.hexdigest()}"


_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
