"""Python servers from an index: what may come of a lock, and what never does."""

import asyncio
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from pml.core.errors import IntegrityFailed, Invalid, NotFound, Unavailable
from pml.core.packages.lock import Lock, Locked
from pml.core.packages.package import Ecosystem
from pml.core.ports.loader import Progress
from pml.install.ecosystems import Entry
from pml.install.pypi.installer import Limits, PypiInstaller, runtime
from tests.install.pypi_bench import (
    install_lock,
    listing,
    lock_of,
    offer_hello,
    pypi_installer,
    pypi_package,
    quiet,
    sha256,
    tell_uv,
)
from tests.install.python_index import PythonIndex, make_sdist, make_wheel, serve_index
from tests.promises import promise


async def test_a_closure_names_every_wheel_by_hash_and_no_place(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    hello, greetings = offer_hello(index)
    elsewhere = index.files["only_elsewhere-3.0-py3-none-any.whl"]
    lock = await pypi_installer(index).resolve(pypi_package("Hello.Server"), folders[0], told=quiet)
    assert lock == Lock(
        ecosystem=Ecosystem.PYPI,
        name="Hello.Server",
        version="1.0",
        root="hello-server==1.0",
        packages=(
            Locked(key="greetings==1.5", name="greetings", version="1.5", integrity=(sha256(greetings),)),
            Locked(key="hello-server==1.0", name="hello-server", version="1.0", integrity=(sha256(hello),)),
            Locked(
                key="only-elsewhere==3.0",
                name="only-elsewhere",
                version="3.0",
                integrity=(sha256(elsewhere),),
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
    offer_hello(index)
    index.plain = True
    lock = await pypi_installer(index).resolve(pypi_package("hello-server"), folders[0], told=quiet)
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
    lock = await pypi_installer(index).resolve(pypi_package("forked"), scratch, told=quiet)
    assert [package.key for package in lock.packages] == [
        "forked==1.0",
        "part==1.0 ; sys_platform == 'elsewhere'",
        "part==2.0 ; sys_platform != 'elsewhere'",
    ]
    await install_lock(pypi_installer(index), lock, scratch, tree, told=quiet)
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
        await pypi_installer(index).resolve(pypi_package(asked), folders[0], told=quiet)
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
        await install_lock(pypi_installer(index), lock_of("only-source", sdist), scratch, tree, told=quiet)
    assert not witness.exists()
    assert set(listing(tree)) <= {"site/.lock"}


async def test_a_package_with_wheels_for_other_machines_only_is_refused_as_such(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("far-away", "1.0")
    index.add("far-away", "1.0", wheel, tag="py3-none-elsewhere")
    with pytest.raises(Invalid, match=r"`far-away==1\.0` has no wheel for this machine"):
        await install_lock(pypi_installer(index), lock_of("far-away", wheel), *folders, told=quiet)


@pytest.mark.parametrize(
    "needed", ["other @ http://127.0.0.1:1/other-1.0-py3-none-any.whl", "other @ git+file:///x"]
)
async def test_a_dependency_that_is_a_url_is_refused(
    index: PythonIndex, folders: tuple[Path, Path], needed: str
) -> None:
    index.add("needs-url", "1.0", make_wheel("needs-url", "1.0", requires=(needed,)))
    with pytest.raises(Invalid, match=r"`needs-url==1\.0` depends on a URL"):
        await pypi_installer(index).resolve(pypi_package("needs-url"), folders[0], told=quiet)


@pytest.mark.parametrize(("name", "version"), [("hello-server", "9.9"), ("never-heard-of", "1.0")])
async def test_what_no_index_has_is_not_found(
    index: PythonIndex, folders: tuple[Path, Path], name: str, version: str
) -> None:
    offer_hello(index)
    with pytest.raises(NotFound, match=f"no such package or version `{name}=={version}`"):
        await pypi_installer(index).resolve(pypi_package(name, version), folders[0], told=quiet)


async def test_a_missing_dependency_is_not_told_as_the_package_missing(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    index.add("needs-more", "1.0", make_wheel("needs-more", "1.0", requires=("never-heard-of",)))
    with pytest.raises(Invalid, match=r"dependencies of `needs-more==1\.0` cannot be met"):
        await pypi_installer(index).resolve(pypi_package("needs-more"), folders[0], told=quiet)


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
        await pypi_installer(index).resolve(pypi_package(name, version), folders[0], told=quiet)
    assert index.asked == []


async def test_an_index_that_is_down_is_unavailable_with_a_hint(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        installer = pypi_installer(index, UV_DEFAULT_INDEX=address, UV_HTTP_RETRIES="0")
        with pytest.raises(Unavailable, match="the package index cannot be reached") as caught:
            await installer.resolve(pypi_package("hello-server"), folders[0], told=quiet)
    assert caught.value.hint is not None
    assert "proxy" in caught.value.hint


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
        await install_lock(pypi_installer(index), lock_of("hello", good), scratch, tree, told=quiet)
    assert str(caught.value) == (
        f"Integrity check failed for hello@1.0: Expected {sha256(good)}, got {sha256(evil)}"
    )
    assert set(listing(tree)) <= {"site/.lock"}


@promise("install:only-proven-bytes")
async def test_a_user_setting_that_turns_hashes_off_does_not_turn_ours_off(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    good, evil = (make_wheel("hello", "1.0", files={"hello.py": text}) for text in ("GOOD = 1", "EVIL = 1"))
    index.add("hello", "1.0", evil)  # its page tells the hash of what it has, so only the lock is against it
    tell_uv("[pip]\nverify-hashes = false\nrequire-hashes = false\n")
    with pytest.raises(IntegrityFailed):
        await install_lock(
            pypi_installer(index, UV_NO_VERIFY_HASHES="1"), lock_of("hello", good), *folders, told=quiet
        )


@promise("install:only-proven-bytes")
async def test_another_version_than_the_locked_one_is_never_installed(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("hello", "1.0", scripts={"hello": "hello:main"})
    index.add("hello", "1.1", make_wheel("hello", "1.1", scripts={"hello": "hello:main"}))
    with pytest.raises(NotFound, match=r"`hello==1\.0`"):
        await install_lock(pypi_installer(index), lock_of("hello", wheel), *folders, told=quiet)
    assert set(listing(folders[1])) <= {"site/.lock"}


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
        await install_lock(pypi_installer(index), lock_of("evil", wheel), scratch, tree, told=quiet)
    except Invalid:
        return
    assert not [path for path in listing(tmp_path) if "escaped" in path and not path.startswith("tree/")]


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
    await install_lock(pypi_installer(index), lock_of("evil", wheel), scratch, tree, told=quiet)
    assert not [path for path in tree.rglob("*") if path.is_symlink()]
    assert (tree / "site/p/link").read_text() == "/etc/passwd"


async def test_two_names_that_are_one_on_some_systems_are_refused(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("evil", "1.0", files={"p/Same.py": "", "p/same.py": ""}, scripts={"evil": "p:main"})
    index.add("evil", "1.0", wheel)
    with pytest.raises(Invalid, match=r"`Same\.py` and `same\.py`"):
        await install_lock(pypi_installer(index), lock_of("evil", wheel), *folders, told=quiet)


async def test_a_wheel_with_a_second_package_in_it_is_refused(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    told = "Metadata-Version: 2.1\nName: stowaway\nVersion: 1.0\n"
    hidden = {"evil-1.0.data/purelib/stowaway-1.0.dist-info/METADATA": told}
    wheel = make_wheel("evil", "1.0", files=hidden, scripts={"evil": "p:main"})
    index.add("evil", "1.0", wheel)
    with pytest.raises(Invalid, match=r"`stowaway==1\.0` was installed, not being in the lock"):
        await install_lock(pypi_installer(index), lock_of("evil", wheel), *folders, told=quiet)


@promise("install:bounded")
async def test_a_bomb_is_stopped_by_its_size(index: PythonIndex, folders: tuple[Path, Path]) -> None:
    bomb = make_wheel("bomb", "1.0", files={"zeros.bin": bytes(64 * 1024**2)}, scripts={"bomb": "p:main"})
    assert len(bomb) < 1024**2
    index.add("bomb", "1.0", bomb)
    installer = pypi_installer(index, limits=Limits(disk_bytes=16 * 1024**2))
    heard: list[Progress] = []
    with pytest.raises(Invalid, match="unpacks to more than 16 MiB"):
        await install_lock(installer, lock_of("bomb", bomb), *folders, told=heard.append)
    assert "compiling" not in [one.message for one in heard]


@promise("install:bounded")
async def test_a_body_that_never_ends_is_ended_by_the_time_limit(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("slow", "1.0")
    index.endless.add(index.add("slow", "1.0", wheel))
    installer = pypi_installer(index, limits=Limits(install_s=2))
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match="did not finish within 2 s"):
            await install_lock(installer, lock_of("slow", wheel), *folders, told=quiet)


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
    lock = lock_of("hello", b"")
    packages = tuple(msgspec.structs.replace(package, **change) for package in lock.packages)
    with pytest.raises(Invalid):
        await install_lock(
            pypi_installer(index), msgspec.structs.replace(lock, packages=packages), *folders, told=quiet
        )
    assert index.asked == []


async def test_settings_of_a_folder_above_do_not_count_and_the_users_do(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    scratch, _ = folders
    offer_hello(index)
    nowhere = 'index-url = "http://127.0.0.1:1/simple"\n'
    (scratch.parent / "uv.toml").write_text(nowhere)
    (scratch.parent / "pyproject.toml").write_text(f"[tool.uv]\n{nowhere}")
    tell_uv(f'index-url = "{index.url}/simple"\n')
    installer = PypiInstaller({"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]})
    lock = await installer.resolve(pypi_package("hello-server"), scratch, told=quiet)
    assert len(lock.packages) == 3


async def test_variables_that_would_change_what_uv_takes_do_not_reach_it(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    offer_hello(index)
    installer = pypi_installer(
        index, UV_OVERRIDE="/nowhere", UV_CONSTRAINT="/nowhere", UV_NO_BINARY="1", UV_PROJECT="/nowhere"
    )
    lock = await installer.resolve(pypi_package("hello-server"), folders[0], told=quiet)
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
        installer = pypi_installer(index, UV_INDEX=f"{first.url}/simple")
        with pytest.raises(NotFound, match=r"`hello==1\.0`") as caught:
            await installer.resolve(pypi_package("hello"), scratch, told=quiet)
        assert "UV_INDEX_STRATEGY" in (caught.value.hint or "")
        assert await install_lock(installer, lock_of("hello", wheel), again, tree, told=quiet) == Entry(
            path="start/hello.py", runtime=runtime()
        )


async def test_the_index_of_pip_is_used_where_uv_has_none(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    offer_hello(index)
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PIP_INDEX_URL": f"{index.url}/simple"}
    lock = await PypiInstaller(environ).resolve(pypi_package("hello-server"), folders[0], told=quiet)
    assert len(lock.packages) == 3


async def test_fetching_gives_the_locked_wheel_for_this_machine_and_no_other_bytes(
    index: PythonIndex, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel = make_wheel("hello", "1.0")
    elsewhere = make_wheel("hello", "1.0", files={"elsewhere.py": ""})
    file = index.add("hello", "1.0", wheel)
    index.add("hello", "1.0", elsewhere, tag="cp34-cp34m-win32")
    lock = lock_of("hello", elsewhere, wheel)
    assert await pypi_installer(index).fetch(lock, folders[0]) == wheel
    index.bodies[file] = evil = make_wheel("hello", "1.0", files={"evil.py": ""})
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(IntegrityFailed) as caught:
        await pypi_installer(index).fetch(lock, again)
    assert caught.value.got == sha256(evil)


async def test_fetching_a_wheel_beyond_its_size_limit_is_refused(
    index: PythonIndex, folders: tuple[Path, Path]
) -> None:
    wheel = make_wheel("hello", "1.0")
    index.add("hello", "1.0", wheel)
    with pytest.raises(Invalid, match="more than"):
        await pypi_installer(index, limits=Limits(wheel_bytes=100)).fetch(lock_of("hello", wheel), folders[0])


@promise("install:young-is-a-persons")
@pytest.mark.parametrize("is_told", [True, False])
async def test_the_youngest_of_a_closure_is_known_if_the_index_tells_of_every_wheel(
    index: PythonIndex, tmp_path: Path, is_told: bool
) -> None:
    offer_hello(index)
    installer = pypi_installer(index)
    lock = await installer.resolve(pypi_package("hello-server"), made(tmp_path / "one"), told=lambda _: None)
    index.uploaded["greetings-1.5-py3-none-any.whl"] = "2026-11-01T02:03:04.000000Z"
    index.uploaded["only_elsewhere-3.0-py3-none-any.whl"] = "2026-12-01T00:00:00.000000Z"
    index.plain = not is_told
    claimed = msgspec.structs.replace(lock, released_at="1999-01-01T00:00:00Z")

    youngest = await installer.youngest_at(claimed, made(tmp_path / "two"))

    assert youngest == (datetime(2026, 11, 1, 2, 3, 4, tzinfo=UTC) if is_told else None)


@promise("install:young-is-a-persons")
async def test_the_age_of_a_wheel_that_the_lock_does_not_name_is_nothing_to_go_by(
    index: PythonIndex, tmp_path: Path
) -> None:
    hello, _ = offer_hello(index)
    index.claims["hello_server-1.0-py3-none-any.whl"] = "0" * 64

    assert (
        await pypi_installer(index).youngest_at(lock_of("hello-server", hello), made(tmp_path / "one"))
        is None
    )


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
