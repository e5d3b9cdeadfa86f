"""`pml deps`: the servers that PML installed: what they are, whether their files are as they were, their end.

Whatever changes what is installed is a person's to decide: it is refused beneath an agent.
"""

import argparse
import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.open_context import opened
from pml.cli.terminal.output import complain, local_time, print_json, print_table, say, say_prose
from pml.cli.terminal.progress import InstallBar
from pml.cli.verbs.deps_install import install_servers, installed_json, proof_of
from pml.cli.verbs.verbs import Verbs, run_verb
from pml.core.errors import NotFound
from pml.core.packages.install_facts import bytes_text
from pml.core.ports.loader import Installed, Progress
from pml.core.text import quote, visible
from pml.core.values import JsonObject

if TYPE_CHECKING:
    from pml.app import Place
    from pml.core.servers.run import ServerRun
    from pml.install.tree.hashes import Difference

EXAMPLES = """Servers are installed when a call needs them and you agreed, or by `pml deps install`.
Every package is checked against its hash, no script of a package runs, and each start verifies the files.

examples:
  pml deps list                      what is installed, its proof, size and place
  pml deps install memory            from the catalog or the registry, after showing all of it
  pml deps verify                    read every file again; exits 1 if one is not as it was
  pml deps remove memory             its files; what it remembered stays
  pml deps gc                        remove older versions and what was left over

exit codes: 0 ok, 1 failed, or files have changed, 2 usage, 3 denied or answered no, 4 nobody there to answer,
5 no such server, 130 interrupted"""
_LIST: Final = """`verified`: the hash of the package was known before; `unverified`: it was not; `accepted`:
a person accepted files that are not those of the package.

examples:
  pml deps list
  pml deps list --json | jq -r '.installed[] | select(.proof != "verified") | .name'"""
_INSTALL: Final = """NAME is a server of the catalog or the registry, or one of its tools (`acme:greet`).
One that is installed and whose files have changed is installed again. To give up files that were accepted,
remove it first.

examples:
  pml deps install memory git
  pml deps install memory --yes      for scripts; refused beneath an agent"""
_VERIFY: Final = """Reads every file, also those whose times tell that they are as they were.

examples:
  pml deps verify                    ~ modified, + added, - removed
  pml deps verify memory --json"""
_REMOVE: Final = """A server that runs from these files is stopped first, in every workspace. What it keeps in
its own folder, such as the memory of `memory`, stays. While another server of that name runs, the files stay
too: it may have been started from an older version.

examples:
  pml deps remove memory"""
_GC: Final = """The versions in use stay, and all versions of a server that runs.

examples:
  pml deps gc"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    verbs = Verbs(parser)
    verbs.add("list", "list what is installed", list_installed, epilog=_LIST)
    install = verbs.add("install", "install servers", install_servers, epilog=_INSTALL)
    install.add_argument("names", metavar="NAME", nargs="+", help="the server")
    install.add_argument("--yes", action="store_true", help="install without asking")
    verify = verbs.add("verify", "read all files again", verify_installed, epilog=_VERIFY)
    verify.add_argument("name", metavar="NAME", nargs="?", help="only this server")
    remove = verbs.add("remove", "remove a server's files", remove_installed, epilog=_REMOVE)
    remove.add_argument("name", metavar="NAME", help="the server")
    verbs.add("gc", "remove older versions and what was left over", collect_garbage, epilog=_GC)


run = run_verb


def list_installed(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_installer

    found = open_installer(find_place(args.workspace)).all_installed()
    sizes = {name: _size(Path(each.path)) for name, each in found.items()}
    if args.json:
        shapes = [{**installed_json(each), "size": sizes[name]} for name, each in sorted(found.items())]
        print_json({"installed": shapes})
    elif not found:
        say_prose("nothing is installed; `pml catalog list` shows what could be")
    else:
        columns = ("SERVER", "VERSION", "INSTALLED", "PROOF", "RUNS", "SIZE", "PATH")
        print_table(columns, [_row(each, sizes[name]) for name, each in sorted(found.items())])
    return Exit.OK


async def verify_installed(args: argparse.Namespace) -> int:
    """Raises: NotFound."""
    from pml.app import find_place, open_installer

    installer = open_installer(find_place(args.workspace))
    installed = _named(installer.all_installed(), args.name)
    with InstallBar() as bar:
        bar(Progress(done=0, total=None, message="reading every file"))
        found = await installer.verify_all()
    differences = {name: found[name] for name in sorted(installed) if name in found}
    if args.json:
        print_json({"verified": [_verified_json(installed[name], differences[name]) for name in differences]})
    else:
        _print_verified(installed, differences)
    return Exit.FAILED if any(differences.values()) else Exit.OK


async def remove_installed(args: argparse.Namespace) -> int:
    """Raises: NotFound, MayNotDecide, Unavailable."""
    from pml.app import find_place, open_installer

    place, name = find_place(args.workspace), str(args.name)
    installer = open_installer(place)
    async with opened(args) as context:
        await guard(context, args)
        installed = _named(installer.all_installed(), name)[name]
        stopped, kept = await remove_files(place, installed)
    if args.json:
        print_json(
            {
                "removed": installed_json(installed),
                "stopped": [_run_json(each) for each in stopped],
                "kept": kept,
            }
        )
        return Exit.OK
    for each in stopped:
        say(f"stopped {visible(name)} in {visible(each.workspace)}")
    say(f"removed {visible(installed.dependency.title)}")
    if kept:
        say_prose("  its files were kept: another server of that name runs; then `pml deps gc` removes them")
    return Exit.OK


async def collect_garbage(args: argparse.Namespace) -> int:
    """Raises: Invalid, MayNotDecide, Unavailable."""
    from pml.app import find_place, open_installer
    from pml.upstream.board import end_orphans

    place = find_place(args.workspace)
    async with opened(args) as context:
        await guard(context, args)
        end_orphans(place.home)
        running = _running(place.home)
        freed = await open_installer(place).gc(_Trees(running))
    if args.json:
        print_json({"freed": freed, "running": running})
        return Exit.OK
    say(f"freed {bytes_text(freed)}" if freed else "there was nothing to remove")
    for name in running:
        say(f"  all of {visible(name)} was kept: it runs")
    return Exit.OK


async def remove_files(place: "Place", installed: Installed) -> "tuple[Sequence[ServerRun], Sequence[str]]":
    """Stop what runs from an installed server's files and remove them; return that, and what is kept.

    Raises: NotFound, Unavailable.
    """
    from pml.app import open_installer

    installer, name = open_installer(place), installed.dependency.name
    stopped = await _stop(place.home, name, installer.target_digest(installed))
    return stopped, await installer.remove(name, _Trees(_running(place.home, but=stopped)))


class _Trees:
    """Every tree of these servers: which of them a running one was started from is written nowhere."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and Path(path).parent.name in self._names


def _running(home: Path, *, but: "Sequence[ServerRun]" = ()) -> Sequence[str]:
    """Return the names of all servers that run, of any gateway; `but` were stopped."""
    from pml.upstream.board import list_servers

    ended = [None, *(each.process for each in but)]
    return sorted({each.name for each in list_servers(home) if each.process not in ended})


async def _stop(home: Path, name: str, target_digest: str) -> "Sequence[ServerRun]":
    """Stop the servers that run from what is installed as `name`."""
    from pml.upstream.board import ask_stop, end_orphans, list_servers

    end_orphans(home)
    runs = [
        each
        for each in list_servers(home)
        if (each.name, each.target_digest) == (name, target_digest) and each.process is not None
    ]
    await asyncio.gather(*(asyncio.to_thread(ask_stop, home, each) for each in runs))
    return runs


def _named(found: Mapping[str, Installed], name: str | None) -> Mapping[str, Installed]:
    """Raises: NotFound."""
    if name is None:
        return found
    if name not in found:
        raise NotFound(f"{quote(name)} is not installed", hint="`pml deps list` shows what is")
    return {name: found[name]}


def _row(installed: Installed, size: int | None) -> tuple[str, ...]:
    dependency = installed.dependency
    contained = "not contained" if installed.containment == "none" else installed.containment.value
    return (
        dependency.name,
        dependency.version,
        local_time(installed.installed_at),
        proof_of(installed).upper() if dependency.integrity is None else proof_of(installed),
        contained,
        "missing" if size is None else bytes_text(size),
        installed.path,
    )


def _print_verified(
    installed: Mapping[str, Installed], differences: "Mapping[str, Difference | None]"
) -> None:
    if not installed:
        say("nothing is installed")
    for name, difference in differences.items():
        title = visible(installed[name].dependency.title)
        if difference is None:
            say_prose(f"{title} is as it was {'accepted' if installed[name].accepted else 'installed'}")
            continue
        say(f"{title} HAS CHANGED; it does not start like this")
        for file in difference.files:
            say(f"  {file}")
        complain(f"  → reinstall it with `pml deps install {name}`")


def _verified_json(installed: Installed, difference: "Difference | None") -> JsonObject:
    return {
        "name": installed.dependency.name,
        "version": installed.dependency.version,
        "ok": difference is None,
        "changed": () if difference is None else difference.files,
        "expected": installed.tree,
        "got": installed.tree if difference is None else difference.tree or None,
    }


def _run_json(posted: "ServerRun") -> JsonObject:
    pid = None if posted.process is None else posted.process.pid
    return {"workspace": posted.workspace, "pid": pid, "gateway_pid": posted.owner_process.pid}


def _size(folder: Path) -> int | None:
    """Return how many bytes lie beneath `folder`, or None if it is not there."""
    if not folder.is_dir():
        return None
    files = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_size for file in files)
