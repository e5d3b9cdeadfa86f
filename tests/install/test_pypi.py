"""Python servers from an index: what may come of a lock, and what never does."""

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from pml.core.capability import McpDependency
from pml.core.errors import IntegrityFailed, Invalid, NotFound, Unavailable
from pml.core.integrity import Algorithm, integrity_of
from pml.core.loading import Progress
from pml.core.locks import Lock, Locked
from pml.core.packages import Ecosystem, Package
from pml.core.permissions import Permissions
from pml.install.ecosystems import Command, Room
from pml.install.pypi import Limits, PypiInstaller
from tests.install.python_index import PythonIndex, make_sdist, make_wheel, serve_index
from tests.promises import promise

_HELLO = "import sys, greetings\n\ndef main():\n    print(greetings.TEXT, sys.argv[1:])\n"
_ENDS_S = 60  # for a server that answers once and ends with its input


@pytest.fixture
def index() -> Generator[PythonIndex]:
    with serve_index() as served:
        yield served


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    scratch, tree = tmp_path / "scratch", tmp_path / "tree"
    scratch.mkdir()
    tree.mkdir()
    return scratch, tree


def _quiet(_: Progress) -> None:
    """Nobody listens."""


def _installer(index: PythonIndex, *, limits: Limits | None = None, **more: str) -> PypiInstaller:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        "UV_DEFAULT_INDEX": f"{index.url}/simple",
    }
    return PypiInstaller({**environ, **more}, limits=limits)


def _package(name: str, version: str = "1.0", *, tool: str | None = None) -> Package:
    return Package(ecosystem=Ecosystem.PYPI, name=name, version=version, tool=tool)


def _sha256(data: bytes) -> str:
    return str(integrity_of(data, Algorithm.SHA256))


def _lock(name: str, *wheels: bytes, version: str = "1.0") -> Lock:
    key = f"{name}=={version}"
    hashes = tuple(_sha256(wheel) for wheel in wheels)
    locked = Locked(key=key, name=name, version=version, integrity=hashes)
    return Lock(ecosystem=Ecosystem.PYPI, name=name, version=version, root=key, packages=(locked,))


def _offer_hello(index: PythonIndex) -> tuple[bytes, bytes]:
    """Offer a server `hello-server` that needs `greetings`, on every system but one."""
    hello = make_wheel(
        "hello-server",
        "1.0",
        files={"hello.py": _HELLO},
        requires=("greetings>=1", "only-elsewhere ; sys_platform == 'elsewhere'"),
        scripts={"hello-server": "hello:main", "other": "hello:other"},
    )
    greetings = make_wheel("greetings", "1.5", files={"greetings.py": "TEXT = 'hello'\n"})
    index.add("hello-server", "1.0", hello)
    index.add("greetings", "1.5", greetings)
    index.add("only-elsewhere", "3.0", make_wheel("only-elsewhere", "3.0", files={"elsewhere.py": ""}))
    return hello, greetings


def _listing(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _tell_uv(text: str) -> None:
    """Write the settings of the user for uv."""
    settings = Path(os.environ["HOME"], ".config", "uv", "uv.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text(text)


def _dependency(package: Package, *args: str) -> McpDependency:
    return McpDependency(name="hello", install=f"uvx {package.spec}", package=package, args=args)


def _room(tree: Path) -> Room:
    return Room(tree=str(tree), state="/its/state", workspace="/the/workspace")


def _run(command: Command, *, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command.command, *command.args],
        input=said,
        env={"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere", "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=_ENDS_S,
        check=False,
    )


async def test_a_closure_names_every_wheel_by_hash_and_no_place(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    hello, greetings = _offer_hello(index)
    elsewhere = index.files["only_elsewhere-3.0-py3-none-any.whl"]
    lock = await _installer(index).resolve(_package("Hello.Server"), folders[0], told=_quiet)
    assert lock == Lock(
        ecosystem=Ecosystem.PYPI,
        name="Hello.Server",
        version="1.0",
        root="hello-server==1.0",
        packages=(
            Locked(key="greetings==1.5", name="greetings", version="1.5", integrity=(_sha256(greetings),)),
            Locked(key="hello-server==1.0", name="hello-server", version="1.0", integrity=(_sha256(hello),)),
            Locked(
                key="only-elsewhere==3.0",
                name="only-elsewhere",
                version="3.0",
                integrity=(_sha256(elsewhere),),
                detail={"marker": "sys_platform == 'elsewhere'"},
            ),
        ),
        size=len(hello) + len(greetings) + len(elsewhere),
        released_at="2026-10-19T12:00:00Z",
    )
    assert "127.0.0.1" not in msgspec.json.encode(lock).decode()


async def test_what_an_index_does_not_tell_is_not_made_up(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    _offer_hello(index)
    index.plain = True
    lock = await _installer(index).resolve(_package("hello-server"), folders[0], told=_quiet)
    assert (lock.size, lock.released_at, len(lock.packages)) == (None, None, 3)


async def test_versions_that_differ_by_system_are_both_locked_and_the_right_one_is_installed(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    scratch, tree = folders
    needs = ("part<2 ; sys_platform == 'elsewhere'", "part>=2 ; sys_platform != 'elsewhere'")
    script = {"forked": "forked:main"}
    index.add("forked", "1.0", make_wheel("forked", "1.0", requires=needs, scripts=script))
    index.add("part", "1.0", make_wheel("part", "1.0", files={"part.py": "OLD = 1"}))
    index.add("part", "2.0", make_wheel("part", "2.0", files={"part.py": "NEW = 1"}))
    lock = await _installer(index).resolve(_package("forked"), scratch, told=_quiet)
    assert [package.key for package in lock.packages] == [
        "forked==1.0",
        "part==1.0 ; sys_platform == 'elsewhere'",
        "part==2.0 ; sys_platform != 'elsewhere'",
    ]
    await _installer(index).install(lock, scratch, tree, told=_quiet)
    assert (tree / "site" / "part.py").read_text() == "NEW = 1"


@promise("install:wheels-only")
@pytest.mark.parametrize("asked", ["only-source", "needs-source"])
async def test_a_package_without_a_wheel_is_refused_and_its_setup_never_runs(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path, asked: str
) -> None:
    witness = tmp_path / "setup-ran"
    index.files["only-source-1.0.tar.gz"] = make_sdist(
        "only-source", "1.0", f"open({str(witness)!r}, 'w').close()\nfrom setuptools import setup\nsetup()\n"
    )
    index.add("needs-source", "1.0", make_wheel("needs-source", "1.0", requires=("only-source",)))
    with pytest.raises(
        Invalid, match=r"`only-source==1\.0` has no wheel; building from source would run its code"
    ):
        await _installer(index).resolve(_package(asked), folders[0], told=_quiet)
    assert not witness.exists()


@promise("install:wheels-only")
async def test_a_lock_with_the_hash_of_a_source_archive_installs_nothing(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    scratch, tree = folders
    witness = tmp_path / "setup-ran"
    sdist = make_sdist("only-source", "1.0", f"open({str(witness)!r}, 'w').close()\n")
    index.files["only-source-1.0.tar.gz"] = sdist
    with pytest.raises(Invalid, match="has no wheel"):
        await _installer(index).install(_lock("only-source", sdist), scratch, tree, told=_quiet)
    assert not witness.exists()
    assert set(_listing(tree)) <= {"site/.lock"}


async def test_a_package_with_wheels_for_other_machines_only_is_refused_as_such(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("far-away", "1.0")
    index.add("far-away", "1.0", wheel, tag="py3-none-elsewhere")
    with pytest.raises(Invalid, match=r"`far-away==1\.0` has no wheel for this machine"):
        await _installer(index).install(_lock("far-away", wheel), *folders, told=_quiet)


@pytest.mark.parametrize(
    "needed", ["other @ http://127.0.0.1:1/other-1.0-py3-none-any.whl", "other @ git+file:///x"]
)
async def test_a_dependency_that_is_a_url_is_refused(
    index: PythonIndex, folders: tuple[Path, Path], needed: str
) -> None:
    index.add("needs-url", "1.0", make_wheel("needs-url", "1.0", requires=(needed,)))
    with pytest.raises(Invalid, match=r"`needs-url==1\.0` depends on a URL"):
        await _installer(index).resolve(_package("needs-url"), folders[0], told=_quiet)


@pytest.mark.parametrize(("name", "version"), [("hello-server", "9.9"), ("never-heard-of", "1.0")])
async def test_what_no_index_has_is_not_found(
    index: PythonIndex, folders: tuple[Path, Path], name: str, version: str
) -> None:
    _offer_hello(index)
    with pytest.raises(NotFound, match=f"no such package or version `{name}=={version}`"):
        await _installer(index).resolve(_package(name, version), folders[0], told=_quiet)


async def test_a_missing_dependency_is_not_told_as_the_package_missing(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    index.add("needs-more", "1.0", make_wheel("needs-more", "1.0", requires=("never-heard-of",)))
    with pytest.raises(Invalid, match=r"dependencies of `needs-more==1\.0` cannot be met"):
        await _installer(index).resolve(_package("needs-more"), folders[0], told=_quiet)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("-r/etc/passwd", "1.0"),
        ("a @ file:///x", "1.0"),
        ("a\nb", "1.0"),
        ("a", "1.0\n--pre"),
        ("a", "1.*"),
        ("a", ""),
    ],
)
async def test_what_is_not_one_package_at_one_version_is_refused_before_uv_sees_it(
    index: PythonIndex, folders: tuple[Path, Path], name: str, version: str
) -> None:
    with pytest.raises(Invalid):
        await _installer(index).resolve(_package(name, version), folders[0], told=_quiet)
    assert index.asked == []


async def test_an_index_that_is_down_is_unavailable_with_a_hint(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        installer = _installer(index, UV_DEFAULT_INDEX=address, UV_HTTP_RETRIES="0")
        with pytest.raises(Unavailable, match="the package index cannot be reached") as caught:
            await installer.resolve(_package("hello-server"), folders[0], told=_quiet)
    assert caught.value.hint is not None
    assert "proxy" in caught.value.hint


async def test_an_installed_server_is_complete_starts_bare_and_is_the_same_each_time(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    scratch, tree = folders
    _offer_hello(index)
    heard: list[Progress] = []
    installer = _installer(index)
    lock = await installer.resolve(_package("hello-server"), scratch, told=_quiet)
    entry = await installer.install(lock, scratch, tree, told=heard.append)
    assert entry == "start/hello-server.py"
    assert [one.done for one in heard] == sorted(one.done for one in heard)
    assert (heard[0].done, heard[-1].done, heard[-1].total) == (0, 4, 4)
    names = set(_listing(tree))
    version = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"
    assert {"site/hello.py", "site/greetings.py", f"site/__pycache__/hello.{version}.pyc"} <= names
    assert not [
        name for name in names if "elsewhere" in name or name.startswith("site/bin/") or ".lock" in name
    ]
    command = installer.command(
        entry, _dependency(_package("hello-server"), "${workspace}", "${state}/x"), _room(tree), Permissions()
    )
    ran = _run(command)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "hello ['/the/workspace', '/its/state/x']\n", "")

    again = tmp_path / "another" / "deeper"
    other_scratch = tmp_path / "other-scratch"
    again.mkdir(parents=True)
    other_scratch.mkdir()
    before = _listing(tree)  # also after it ran: a start leaves nothing behind
    await installer.install(lock, other_scratch, again, told=_quiet)
    assert _listing(again) == before
    assert not [
        name for name, file in ((n, again / n) for n in before) if str(tmp_path).encode() in file.read_bytes()
    ]


async def test_the_program_is_the_named_one_else_the_one_called_like_the_package(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    scratch, tree = folders
    wheel = make_wheel("two-tools", "1.0", scripts={"first": "t:a", "second": "t:b.c"}, files={"t.py": ""})
    index.add("two-tools", "1.0", wheel)
    installer = _installer(index)
    entry = await installer.install(_lock("two-tools", wheel), scratch, tree, told=_quiet)
    named = _dependency(_package("two-tools", tool="second"))
    command = installer.command(entry, named, _room(tree), Permissions())
    assert command.args == ("-I", "-S", "-B", str(tree / "start" / "second.py"))
    for tool, told in ((None, "called like the package"), ("third", "`third`")):
        with pytest.raises(Invalid, match=f"has no program {told}; it has `first`, `second`"):
            installer.command(
                entry, _dependency(_package("two-tools", tool=tool)), _room(tree), Permissions()
            )


@pytest.mark.parametrize("scripts", [{}, {"bad": "module"}, {"bad": "os:system('x')"}])
async def test_a_package_without_a_function_to_start_is_no_server(
    index: PythonIndex, folders: tuple[Path, Path], scripts: dict[str, str]
) -> None:
    wheel = make_wheel("library", "1.0", scripts=scripts)
    index.add("library", "1.0", wheel)
    with pytest.raises(Invalid):
        await _installer(index).install(_lock("library", wheel), *folders, told=_quiet)


@promise("install:only-proven-bytes")
async def test_a_wheel_that_is_not_the_locked_one_is_refused_with_both_hashes_and_nothing_stays(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    scratch, tree = folders
    good = make_wheel("hello", "1.0", files={"hello.py": "GOOD = 1"}, scripts={"hello": "hello:main"})
    evil = make_wheel("hello", "1.0", files={"hello.py": "EVIL = 1"}, scripts={"hello": "hello:main"})
    file = index.add("hello", "1.0", good)
    index.bodies[file] = evil
    with pytest.raises(IntegrityFailed) as caught:
        await _installer(index).install(_lock("hello", good), scratch, tree, told=_quiet)
    assert str(caught.value) == (
        f"Integrity check failed for hello@1.0: Expected {_sha256(good)}, got {_sha256(evil)}"
    )
    assert set(_listing(tree)) <= {"site/.lock"}


@promise("install:only-proven-bytes")
async def test_a_user_setting_that_turns_hashes_off_does_not_turn_ours_off(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    good, evil = (make_wheel("hello", "1.0", files={"hello.py": text}) for text in ("GOOD = 1", "EVIL = 1"))
    index.add("hello", "1.0", evil)  # its page tells the hash of what it has, so only the lock is against it
    _tell_uv("[pip]\nverify-hashes = false\nrequire-hashes = false\n")
    with pytest.raises(IntegrityFailed):
        await _installer(index, UV_NO_VERIFY_HASHES="1").install(_lock("hello", good), *folders, told=_quiet)


@promise("install:only-proven-bytes")
async def test_another_version_than_the_locked_one_is_never_installed(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("hello", "1.0", scripts={"hello": "hello:main"})
    index.add("hello", "1.1", make_wheel("hello", "1.1", scripts={"hello": "hello:main"}))
    with pytest.raises(NotFound, match=r"`hello==1\.0`"):
        await _installer(index).install(_lock("hello", wheel), *folders, told=_quiet)
    assert set(_listing(folders[1])) <= {"site/.lock"}


@promise("install:nothing-outside")
@pytest.mark.parametrize(
    "name", ["../../../escaped.py", "{tmp}/escaped.py", "evil-1.0.data/data/../../../../escaped.py"]
)
async def test_names_in_a_wheel_that_lead_out_of_the_folder_write_nothing_there(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    scratch, tree = folders
    files = {name.format(tmp=tmp_path): "out", "hello.py": ""}
    wheel = make_wheel("evil", "1.0", files=files, scripts={"evil": "hello:main"})
    index.add("evil", "1.0", wheel)
    try:
        await _installer(index).install(_lock("evil", wheel), scratch, tree, told=_quiet)
    except Invalid:
        return
    assert not [path for path in _listing(tmp_path) if "escaped" in path and not path.startswith("tree/")]


@promise("install:nothing-outside")
async def test_a_link_in_a_wheel_becomes_no_link(index: PythonIndex, folders: tuple[Path, Path]) -> None:
    scratch, tree = folders
    wheel = make_wheel(
        "evil",
        "1.0",
        files={"p/__init__.py": ""},
        links={"p/link": "/etc/passwd"},
        scripts={"evil": "p:main"},
    )
    index.add("evil", "1.0", wheel)
    await _installer(index).install(_lock("evil", wheel), scratch, tree, told=_quiet)
    assert not [path for path in tree.rglob("*") if path.is_symlink()]
    assert (tree / "site/p/link").read_text() == "/etc/passwd"


async def test_two_names_that_are_one_on_some_systems_are_refused(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("evil", "1.0", files={"p/Same.py": "", "p/same.py": ""}, scripts={"evil": "p:main"})
    index.add("evil", "1.0", wheel)
    with pytest.raises(Invalid, match=r"`Same\.py` and `same\.py`"):
        await _installer(index).install(_lock("evil", wheel), *folders, told=_quiet)


async def test_a_wheel_with_a_second_package_in_it_is_refused(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    told = "Metadata-Version: 2.1\nName: stowaway\nVersion: 1.0\n"
    hidden = {"evil-1.0.data/purelib/stowaway-1.0.dist-info/METADATA": told}
    wheel = make_wheel("evil", "1.0", files=hidden, scripts={"evil": "p:main"})
    index.add("evil", "1.0", wheel)
    with pytest.raises(Invalid, match=r"`stowaway==1\.0` was installed, not being in the lock"):
        await _installer(index).install(_lock("evil", wheel), *folders, told=_quiet)


@promise("install:bounded")
async def test_a_bomb_is_stopped_by_its_size(index: PythonIndex, folders: tuple[Path, Path]) -> None:
    bomb = make_wheel("bomb", "1.0", files={"zeros.bin": bytes(64 * 1024**2)}, scripts={"bomb": "p:main"})
    assert len(bomb) < 1024**2
    index.add("bomb", "1.0", bomb)
    installer = _installer(index, limits=Limits(disk_bytes=16 * 1024**2))
    heard: list[Progress] = []
    with pytest.raises(Invalid, match="unpacks to more than 16 MiB"):
        await installer.install(_lock("bomb", bomb), *folders, told=heard.append)
    assert "compiling" not in [one.message for one in heard]


@promise("install:bounded")
async def test_a_body_that_never_ends_is_ended_by_the_time_limit(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("slow", "1.0")
    index.endless.add(index.add("slow", "1.0", wheel))
    installer = _installer(index, limits=Limits(install_s=2))
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match="did not finish within 2 s"):
            await installer.install(_lock("slow", wheel), *folders, told=_quiet)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "x --index-url http://127.0.0.1:1"},
        {"version": "1.0\n-e ."},
        {"detail": {"marker": "sys_platform == 'linux' --hash=sha256:00"}},
        {"detail": {"marker": "python_version > '3'\n--index-url http://127.0.0.1:1"}},
        {"detail": {"marker": 7}},
        {"integrity": ()},
        {"integrity": ("sha512-" + "A" * 86 + "==",)},
    ],
)
async def test_a_lock_that_is_more_than_pinned_and_hashed_packages_never_reaches_uv(
    index: PythonIndex, folders: tuple[Path, Path], change: dict[str, object]
) -> None:
    lock = _lock("hello", b"")
    packages = tuple(msgspec.structs.replace(package, **change) for package in lock.packages)
    with pytest.raises(Invalid):
        await _installer(index).install(
            msgspec.structs.replace(lock, packages=packages), *folders, told=_quiet
        )
    assert index.asked == []


async def test_settings_of_a_folder_above_do_not_count_and_the_users_do(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    scratch, _ = folders
    _offer_hello(index)
    nowhere = 'index-url = "http://127.0.0.1:1/simple"\n'
    (scratch.parent / "uv.toml").write_text(nowhere)
    (scratch.parent / "pyproject.toml").write_text(f"[tool.uv]\n{nowhere}")
    _tell_uv(f'index-url = "{index.url}/simple"\n')
    installer = PypiInstaller({"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]})
    lock = await installer.resolve(_package("hello-server"), scratch, told=_quiet)
    assert len(lock.packages) == 3


async def test_variables_that_would_change_what_uv_takes_do_not_reach_it(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    _offer_hello(index)
    installer = _installer(
        index, UV_OVERRIDE="/nowhere", UV_CONSTRAINT="/nowhere", UV_NO_BINARY="1", UV_PROJECT="/nowhere"
    )
    lock = await installer.resolve(_package("hello-server"), folders[0], told=_quiet)
    assert len(lock.packages) == 3


async def test_of_several_indexes_the_first_that_knows_a_package_counts_until_its_hash_is_given(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    scratch, tree = folders
    wheel = make_wheel("hello", "1.0", scripts={"hello": "hello:main"})
    index.add("hello", "1.0", wheel)
    again = tmp_path / "again"
    again.mkdir()
    with serve_index() as first:
        first.add("hello", "0.9", make_wheel("hello", "0.9"))
        installer = _installer(index, UV_INDEX=f"{first.url}/simple")
        with pytest.raises(NotFound, match=r"`hello==1\.0`") as caught:
            await installer.resolve(_package("hello"), scratch, told=_quiet)
        assert "UV_INDEX_STRATEGY" in (caught.value.hint or "")
        assert await installer.install(_lock("hello", wheel), again, tree, told=_quiet) == "start/hello.py"


async def test_the_index_of_pip_is_used_where_uv_has_none(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    _offer_hello(index)
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PIP_INDEX_URL": f"{index.url}/simple"}
    lock = await PypiInstaller(environ).resolve(_package("hello-server"), folders[0], told=_quiet)
    assert len(lock.packages) == 3


async def test_fetching_gives_the_locked_wheel_for_this_machine_and_no_other_bytes(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel = make_wheel("hello", "1.0")
    elsewhere = make_wheel("hello", "1.0", files={"elsewhere.py": ""})
    file = index.add("hello", "1.0", wheel)
    index.add("hello", "1.0", elsewhere, tag="cp34-cp34m-win32")
    lock = _lock("hello", elsewhere, wheel)
    assert await _installer(index).fetch(lock, folders[0]) == wheel
    index.bodies[file] = evil = make_wheel("hello", "1.0", files={"evil.py": ""})
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(IntegrityFailed) as caught:
        await _installer(index).fetch(lock, again)
    assert caught.value.got == _sha256(evil)


async def test_fetching_a_wheel_beyond_its_size_limit_is_refused(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("hello", "1.0")
    index.add("hello", "1.0", wheel)
    with pytest.raises(Invalid, match="more than"):
        await _installer(index, limits=Limits(wheel_bytes=100)).fetch(_lock("hello", wheel), folders[0])


def test_a_server_needs_its_interpreter_and_nothing_of_a_virtual_environment(
    index: PythonIndex, tmp_path: Path
) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "hello.py").touch()
    command = _installer(index).command(
        "start/hello.py", _dependency(_package("hello")), _room(tmp_path), Permissions()
    )
    assert not os.path.islink(command.command)
    assert any(Path(command.command).is_relative_to(place) for place in command.needs)
    assert os.path.realpath(sys.base_prefix) in command.needs
    if sys.prefix != sys.base_prefix:
        assert not any(Path(sys.prefix).is_relative_to(place) for place in command.needs)
    if os.path.realpath(sys.base_prefix) == "/usr":
        assert command.needs == ("/usr",)


async def test_a_real_server_is_resolved_installed_and_answers_initialize(folders: tuple[Path, Path]) -> None:
    scratch, tree = folders
    package = _package("mcp-server-time", "2026.10.19")
    installer = PypiInstaller(dict(os.environ))
    try:
        lock = await installer.resolve(package, scratch, told=_quiet)
        entry = await installer.install(lock, scratch, tree, told=_quiet)
    except Unavailable as exc:
        pytest.skip(f"needs a Python package index, which cannot be reached: {exc}")
    command = installer.command(entry, _dependency(package), _room(tree), Permissions())
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    before = _listing(tree)
    ran = _run(command, said=json.dumps(asked) + "\n")
    assert json.loads(ran.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "mcp-time"
    assert _listing(tree) == before
