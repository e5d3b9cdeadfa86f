"""npm packages: from a registry on loopback that lies in every way, and one real server from the real one."""

import json
import stat
import tarfile
from collections.abc import Generator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pml.core.errors import IntegrityFailed, Invalid, NotFound, Unavailable
from pml.core.ports.loader import Progress
from pml.install.ecosystems import Entry
from tests.install.npm_bench import BIN, QUICK, SRV, Bench, listing, publish_two
from tests.install.npm_registry import (
    SERVER,
    NpmRegistry,
    endless,
    npm_registry,
    pack,
    plain,
    plainly,
    sha512,
    silent,
    special,
)
from tests.promises import promise


@pytest.fixture
def registry() -> Generator[NpmRegistry]:
    with npm_registry() as it:
        yield it


@pytest.fixture
def bench(home: Path, registry: NpmRegistry, tmp_path: Path) -> Bench:
    return Bench(home, registry, tmp_path)


async def test_a_closure_is_locked_with_one_hash_for_each_package_and_no_place(bench: Bench) -> None:
    publish_two(bench.registry)
    lock = await bench.resolve()
    dists = {name: said["versions"] for name, said in bench.registry.packuments.items()}
    assert msgspec.json.decode(msgspec.json.encode(lock)) == {
        "ecosystem": "npm",
        "name": "srv",
        "version": "1.0.0",
        "root": "srv@1.0.0",
        "packages": [
            {
                "key": "@some/dep@2.1.0",
                "name": "@some/dep",
                "version": "2.1.0",
                "integrity": [dists["@some/dep"]["2.1.0"]["dist"]["integrity"]],
                "has_scripts": True,
            },
            {
                "key": "srv@1.0.0",
                "name": "srv",
                "version": "1.0.0",
                "integrity": [dists["srv"]["1.0.0"]["dist"]["integrity"]],
                "detail": {"dependencies": ["@some/dep"], "bin": True},
            },
        ],
        "released_at": "2026-01-02T03:04:05+00:00",
    }
    assert not any(path.endswith(".tgz") for path in bench.registry.asked)


async def test_a_lock_is_installed_the_same_every_time_and_nothing_volatile_is_in_it(bench: Bench) -> None:
    publish_two(bench.registry)
    lock = await bench.resolve()
    bench.told.clear()
    tree, entry = await bench.install(lock)
    again, _ = await bench.install(lock)
    assert listing(tree) == listing(again)
    store = "node_modules/.deno"
    files = [name for name, content, _ in listing(tree) if content != "/" and "->" not in content]
    assert files == [
        f"{store}/@some+dep@2.1.0/node_modules/@some/dep/index.js",
        f"{store}/@some+dep@2.1.0/node_modules/@some/dep/package.json",
        f"{store}/srv@1.0.0/node_modules/srv/index.js",
        f"{store}/srv@1.0.0/node_modules/srv/package.json",
        "package.json",
    ]
    assert entry == Entry(path=f"{store}/srv@1.0.0/node_modules/srv/index.js", runtime="deno")
    assert (tree / entry.path).read_bytes() == SERVER
    assert all((tree / file).stat().st_nlink == 1 for file in files)
    assert bench.told[-1] == Progress(done=2, total=2, message="unpacked srv@1.0.0")
    assert not any(bench.registry.url in told.message for told in bench.told)


@promise("install:no-scripts")
async def test_the_scripts_of_a_package_are_never_run(bench: Bench, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    scripts = {step: f"touch {trace}" for step in ("preinstall", "install", "postinstall", "prepare")}
    bench.registry.publish("srv", bin=BIN, scripts=scripts, files={"binding.gyp": b"{}"})
    lock = await bench.resolve()
    tree, _ = await bench.install(lock)
    assert lock.with_scripts == ("srv",)
    assert json.loads((tree / "node_modules/srv/package.json").read_bytes())["scripts"] == scripts
    assert not trace.exists()


@promise("install:only-proven-bytes")
async def test_a_tarball_with_other_bytes_than_the_lock_names_is_refused(bench: Bench) -> None:
    path = bench.registry.publish("srv", bin=BIN)
    lock = await bench.resolve()
    other = pack({"package.json": b'{"name": "srv", "version": "1.0.0", "bin": "index.js"}', "index.js": b""})
    bench.registry.answers[path] = plainly(other)
    with pytest.raises(IntegrityFailed) as caught:
        await bench.install(lock)
    expected = lock.artefact[0]
    assert caught.value.message == (
        f"Integrity check failed for srv@1.0.0: Expected {expected}, got {sha512(other)}"
    )


@promise("install:only-proven-bytes")
async def test_a_version_that_was_published_anew_since_it_was_locked_is_refused(bench: Bench) -> None:
    bench.registry.publish("dep")
    bench.registry.publish("srv", bin=BIN, dependencies={"dep": "1.0.0"})
    lock = await bench.resolve()
    bench.registry.publish("dep", files={"index.js": b"evil()"})
    with pytest.raises(IntegrityFailed, match=r"failed for dep@1\.0\.0: Expected sha512-.*, got sha512-"):
        await bench.install(lock)


async def test_a_new_version_of_a_dependency_does_not_float_into_an_install(bench: Bench) -> None:
    publish_two(bench.registry)
    lock = await bench.resolve()
    bench.registry.publish("@some/dep", "2.2.0")
    tree, _ = await bench.install(lock)
    assert {path.name for path in (tree / "node_modules/.deno").iterdir()} == {
        "@some+dep@2.1.0",
        "srv@1.0.0",
        "node_modules",
    }


@pytest.mark.parametrize(
    ("dist", "reason"),
    [
        ({"integrity": None}, "`srv@1.0.0` has no hash in the lock"),
        ({"integrity": None, "shasum": "a" * 40}, "the hash of `srv@1.0.0` in the lock must be"),
        ({"integrity": "sha1-qqqqqqqqqqqqqqqqqqqqqqqqqqo="}, "the hash of `srv@1.0.0` in the lock must be"),
        ({"integrity": "sha256-" + "A" * 43 + "="}, "`srv@1.0.0` must have exactly one hash in the lock"),
        ({"tarball": "http://127.0.0.1:9/srv.tgz"}, "`srv@1.0.0` would come from another host"),
    ],
)
async def test_a_package_that_cannot_be_verified_is_refused_by_name(
    bench: Bench, dist: Mapping[str, Any], reason: str
) -> None:
    bench.registry.publish("srv", bin=BIN, dist=dist)
    with pytest.raises(Invalid) as caught:
        await bench.resolve()
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "wanted", ["git+https://host.invalid/x.git", "http://host.invalid/x.tgz", "file:../x", "link:../x", "a/b"]
)
async def test_a_dependency_from_outside_the_registry_is_refused_with_its_place(
    bench: Bench, wanted: str
) -> None:
    bench.registry.publish("srv", bin=BIN, dependencies={"dep": wanted})
    with pytest.raises(Invalid, match=r"depends on .*, which is not in the npm registry") as caught:
        await bench.resolve()
    assert f"`{wanted}`" in caught.value.message


async def test_a_package_or_version_that_does_not_exist_is_named(bench: Bench) -> None:
    with pytest.raises(NotFound, match=r"^no such package or version `srv@1\.0\.0` in the npm registry$"):
        await bench.resolve()
    bench.registry.publish("srv", "1.0.1", bin=BIN, dependencies={"dep": "1.0.0"})
    with pytest.raises(NotFound, match=r"^no such package or version `srv@1\.0\.0` in the npm registry$"):
        await bench.resolve()
    with pytest.raises(NotFound, match=r"no such package `dep` .*, and `srv@1\.0\.1` needs it"):
        await bench.resolve(msgspec.structs.replace(SRV, version="1.0.1"))


@pytest.mark.parametrize(
    ("name", "version"), [("other", "1.0.0"), ("srv", "6.6.6")], ids=["another name", "another version"]
)
async def test_a_package_that_says_it_is_another_is_refused(bench: Bench, name: str, version: str) -> None:
    said = json.dumps({"name": name, "version": version, "bin": BIN}).encode()
    bench.registry.publish("srv", bin=BIN, files={"package.json": said})
    lock = await bench.resolve()
    with pytest.raises(Invalid, match=r"`srv@1\.0\.0` says that it is another package"):
        await bench.install(lock)


@pytest.mark.parametrize("lie", [{"name": "other"}, {"name": "../../srv"}, {"name": None}])
async def test_a_registry_that_answers_with_another_package_gives_no_lock(
    bench: Bench, lie: Mapping[str, Any]
) -> None:
    bench.registry.publish("srv", bin=BIN)
    bench.registry.packuments["srv"] |= lie
    with pytest.raises((NotFound, Unavailable)):
        await bench.resolve()


@promise("install:nothing-outside")
@pytest.mark.parametrize(
    "path", ["package/../../../../../../outside", "../outside", "package/x/../../../outside"]
)
async def test_a_tarball_that_climbs_out_of_its_folder_is_refused(bench: Bench, path: str) -> None:
    bench.registry.publish("srv", bin=BIN, members=[plain(path, b"x")])
    lock = await bench.resolve()
    with pytest.raises(Invalid, match="would write outside its folder"):
        await bench.install(lock)
    assert not list(bench.folder.rglob("outside"))


@promise("install:nothing-outside")
async def test_a_tarball_with_an_absolute_path_is_refused(bench: Bench) -> None:
    bench.registry.publish("srv", bin=BIN, members=[plain(str(bench.folder / "outside"), b"x")])
    lock = await bench.resolve()
    with pytest.raises(Invalid, match="would write outside its folder"):
        await bench.install(lock)
    assert not list(bench.folder.rglob("outside"))


@promise("install:nothing-outside")
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE], ids=["symbolic", "hard"])
async def test_a_tarball_with_links_is_refused(bench: Bench, kind: bytes) -> None:
    target = str(bench.folder)
    members = [special("package/out", kind, target), plain("package/out/outside", b"x")]
    bench.registry.publish("srv", bin=BIN, members=members)
    lock = await bench.resolve()
    with pytest.raises(Invalid, match="brings a link: `out`"):
        await bench.install(lock)
    assert not (bench.folder / "outside").exists()


@promise("install:nothing-outside")
async def test_devices_and_pipes_of_a_tarball_are_not_made(bench: Bench) -> None:
    members = [special("package/pipe", tarfile.FIFOTYPE), special("package/device", tarfile.CHRTYPE)]
    bench.registry.publish("srv", bin=BIN, members=members)
    tree, _ = await bench.install(await bench.resolve())
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in tree.rglob("*")}
    assert kinds == {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}


async def test_names_that_differ_only_in_case_are_refused(bench: Bench) -> None:
    bench.registry.publish("srv", bin=BIN, files={"lib/A.js": b"1", "lib/a.js": b"2"})
    lock = await bench.resolve()
    with pytest.raises(Invalid, match=r"has both `A\.js` and `a\.js` in .*: on some systems they are one"):
        await bench.install(lock)


@promise("install:bounded")
async def test_a_package_that_unpacks_to_too_much_is_refused(bench: Bench) -> None:
    bench.registry.publish("srv", bin=BIN, files={"bomb": bytes(32 * 1024**2)})
    lock = await bench.resolve()
    with pytest.raises(Invalid, match="unpacks to more than 8 MiB"):
        await bench.install(lock, msgspec.structs.replace(QUICK, disk_bytes=8 * 1024**2))


@promise("install:bounded")
@pytest.mark.parametrize("answer", [endless, silent])
async def test_a_body_that_never_ends_or_never_comes_ends_by_the_time(bench: Bench, answer: Any) -> None:
    path = bench.registry.publish("srv", bin=BIN)
    lock = await bench.resolve()
    quick = msgspec.structs.replace(QUICK, resolve_s=1, install_s=1, fetch_s=1)
    bench.registry.answers[path] = answer
    with pytest.raises(Unavailable, match="did not finish within 1 s"):
        await bench.install(lock, quick)
    with pytest.raises(Unavailable, match="could not be downloaded"):
        await bench.installer(quick).fetch(lock, bench.fresh("scratch"))
    bench.registry.answers["/srv"] = answer
    with pytest.raises(Unavailable, match="did not finish within 1 s"):
        await bench.resolve(limits=quick)


async def test_a_registry_that_is_down_is_said_with_what_to_check(bench: Bench) -> None:
    (bench.home / ".npmrc").write_text("registry=http://127.0.0.1:9/\n")
    with pytest.raises(Unavailable, match=r"did not give `srv@1\.0\.0`") as caught:
        await bench.resolve()
    assert caught.value.hint is not None
    assert "`.npmrc`" in caught.value.hint


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (plainly(b"<html>hello</html>"), "could not be installed"),
        (plainly(b"{}"), "could not be installed"),
        (plainly(b"no", status=403), "refuses `srv@1.0.0`: status 403"),
        (plainly(b"no", status=404), "no such package or version"),
    ],
)
async def test_a_registry_that_answers_nonsense_or_refuses_is_told_apart(
    bench: Bench, answer: Any, reason: str
) -> None:
    bench.registry.answers["/srv"] = answer
    with pytest.raises((Unavailable, NotFound), match=reason):
        await bench.resolve()


async def test_a_registry_that_keeps_its_tarballs_elsewhere_on_its_host_is_followed(bench: Bench) -> None:
    bench.registry.publish("dep", dist={"tarball": f"{bench.registry.url}download/dep"})
    path = bench.registry.publish("srv", bin=BIN, dependencies={"dep": "1"})
    bench.registry.answers["/download/dep"] = bench.registry.answers.pop("/dep/-/dep-1.0.0.tgz")
    tree, entry = await bench.install(await bench.resolve())
    assert (tree / entry.path).is_file()
    assert {path, "/download/dep"} <= set(bench.registry.asked)


async def test_the_artefact_is_fetched_and_proven(bench: Bench) -> None:
    path = bench.registry.publish("srv", bin=BIN)
    lock = await bench.resolve()
    body = await bench.installer().fetch(lock, bench.fresh("scratch"))
    assert sha512(body) == lock.artefact[0]
    bench.registry.answers[path] = plainly(b"other")
    with pytest.raises(IntegrityFailed, match=r"srv@1\.0\.0: Expected sha512-.*, got sha512-"):
        await bench.installer().fetch(lock, bench.fresh("scratch"))
    bench.registry.answers[path] = plainly(bytes(1000))
    small = msgspec.structs.replace(QUICK, artefact_bytes=999)
    with pytest.raises(Invalid, match="has more than 999 bytes"):
        await bench.installer(small).fetch(lock, bench.fresh("scratch"))


async def test_an_artefact_is_not_fetched_from_another_host_than_its_registry(bench: Bench) -> None:
    bench.registry.publish("srv", bin=BIN)
    lock = await bench.resolve()
    bench.registry.publish("srv", bin=BIN, dist={"tarball": "http://127.0.0.1:9/srv.tgz"})
    with pytest.raises(Invalid, match="would come from another host than its registry"):
        await bench.installer().fetch(lock, bench.fresh("scratch"))


async def test_an_artefact_is_not_fetched_through_a_redirect_to_another_scheme(bench: Bench) -> None:
    path = bench.registry.publish("srv", bin=BIN)
    lock = await bench.resolve()
    bench.registry.answers[path] = plainly(b"", status=302, location="https://127.0.0.1:9/srv.tgz")
    with pytest.raises(Unavailable, match="was redirected to from http"):
        await bench.installer().fetch(lock, bench.fresh("scratch"))


async def test_the_users_credentials_reach_the_users_registry(bench: Bench) -> None:
    bench.registry.publish("@mine/srv", bin=BIN)
    place = bench.registry.url.removeprefix("http:")
    (bench.home / ".npmrc").write_text(
        f"@mine:registry={bench.registry.url}\n{place}:_authToken=${{MY_NPM_TOKEN}}\n"
    )
    package = msgspec.structs.replace(SRV, name="@mine/srv")
    lock = await bench.resolve(package, environ={"MY_NPM_TOKEN": "word"})
    await bench.installer(environ={"MY_NPM_TOKEN": "word"}).fetch(lock, bench.fresh("scratch"))
    assert set(bench.registry.authorizations) == {"Bearer word"}
    assert bench.registry.asked[-1].endswith("srv-1.0.0.tgz")
    for copy in bench.folder.rglob(".npmrc"):
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert "word" not in copy.read_text()


async def test_credentials_do_not_follow_a_redirect_to_another_host(bench: Bench) -> None:
    path = bench.registry.publish("srv", bin=BIN)
    place = bench.registry.url.removeprefix("http:")
    (bench.home / ".npmrc").write_text(f"registry={bench.registry.url}\n{place}:_authToken=word\n")
    lock = await bench.resolve()
    with npm_registry() as other:
        other.answers[path] = bench.registry.answers[path]
        bench.registry.answers[path] = plainly(b"", status=302, location=other.url[:-1] + path)
        assert sha512(await bench.installer().fetch(lock, bench.fresh("scratch"))) == lock.artefact[0]
    assert bench.registry.authorizations[-1] == "Bearer word"
    assert other.authorizations == [None]


@pytest.mark.parametrize("variable", ["NPM_CONFIG_REGISTRY", "npm_config_registry", "npm_config_userconfig"])
async def test_settings_that_npm_takes_from_its_environment_count(bench: Bench, variable: str) -> None:
    bench.registry.publish("srv", bin=BIN)
    (bench.home / ".npmrc").write_text("registry=http://127.0.0.1:9/\n")
    other = bench.home / "other-npmrc"
    other.write_text(f"registry={bench.registry.url}\n")
    value = str(other) if variable.endswith("userconfig") else bench.registry.url
    assert (await bench.resolve(environ={variable: value})).name == "srv"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deno.json", "{broken"),
        ("deno.json", '{"workspace": ["./scratch/0/server"]}'),
        ("package.json", '{"workspaces": ["scratch/0/*"], "dependencies": {"no-such-package": "1.0.0"}}'),
    ],
)
async def test_a_project_above_the_scratch_folder_does_not_count(
    bench: Bench, name: str, content: str
) -> None:
    bench.registry.publish("srv", bin=BIN)
    (bench.folder / name).write_text(content)
    assert [package.key for package in (await bench.resolve()).packages] == ["srv@1.0.0"]
    assert {path.name for path in bench.folder.iterdir()} == {name, "scratch"}


@promise("install:young-is-a-persons")
async def test_the_youngest_of_a_closure_is_known_from_the_registry_whatever_the_lock_says(
    bench: Bench,
) -> None:
    publish_two(bench.registry)
    lock = msgspec.structs.replace(await bench.resolve(), released_at="1999-01-01T00:00:00Z")
    bench.registry.packuments["@some/dep"]["time"]["2.1.0"] = "2026-03-04T05:06:07.000Z"

    youngest = await bench.installer().youngest_at(lock, bench.fresh("scratch"))

    assert youngest == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@promise("install:young-is-a-persons")
async def test_the_age_of_a_closure_is_not_known_if_that_of_one_package_is_not(bench: Bench) -> None:
    publish_two(bench.registry)
    lock = await bench.resolve()
    del bench.registry.packuments["@some/dep"]["time"]["2.1.0"]

    assert await bench.installer().youngest_at(lock, bench.fresh("scratch")) is None


async def test_a_version_left_open_is_looked_up_and_held_back_to_what_was_there_before_a_day(
    bench: Bench,
) -> None:
    publish_two(bench.registry)
    bench.registry.publish("srv", "1.1.0", bin=BIN)
    bench.registry.publish("srv", "2.0.0", bin=BIN)
    times = bench.registry.packuments["srv"]["time"]
    times["1.1.0"], times["2.0.0"] = "2026-03-01T00:00:00.000Z", "2026-05-01T00:00:00.000Z"

    async def version(wanted: str | None, *, before: date | None = None) -> str:
        it, scratch = bench.installer(), bench.fresh("scratch")
        return (await it.look_up("srv", wanted, scratch, before=before, told=bench.told.append)).version

    assert await version(None) == "2.0.0"
    assert await version("latest") == "2.0.0"
    assert await version("^1.0.0") == "1.1.0"
    assert await version("1.0.0") == "1.0.0"
    assert await version(None, before=date(2026, 4, 1)) == "1.1.0"
    for alias in ("npm:other@1.0.0", "file:../x", "https://x.example.com/y.tgz"):
        with pytest.raises(Invalid, match="is not a version"):
            await version(alias)
