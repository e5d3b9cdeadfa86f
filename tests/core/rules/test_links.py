"""Following a path: where it leads, what depends on the process, and which links others can exchange."""

import os
from pathlib import Path

import pytest

from pml.core.packages.permissions import Access, Permissions
from pml.core.rules.links import MAX_LINKS, Followed, follow
from pml.core.rules.ruleset import Call, Effect, RuleSet, VerdictKind, parse_entry
from pml.core.servers.process_launch import ProcessLaunch
from pml.core.values import Json
from pml.settings.config_files import RealPaths
from tests.builders import NOW
from tests.core.judging import FakePaths, allows, denies
from tests.promises import promise

OF_A_PROCESS = [
    *("/proc/self/cwd/x", "/proc/self", "/proc/thread-self/root/etc", "/proc/1/root/etc", "/proc/77/fd/3"),
    *("/dev/fd/3", "/dev/stdin", "/proc/../proc/./self/cwd", "//proc//self/cwd/x", "/repo/here/x"),
]
LINKED = FakePaths(links={"/repo/here": "/proc/self/cwd", "/repo/a": "/repo/b", "/x": "/y", "/y": "/x"})


@promise("rules:paths-from-every-folder")
@pytest.mark.parametrize("path", OF_A_PROCESS)
def test_what_depends_on_the_process_that_opens_it_is_in_doubt(path: str) -> None:
    with pytest.raises(ValueError, match="depends on who opens it"):
        follow(path, LINKED, {})
    assert not allows({"under": "/"}, path, paths=LINKED)
    assert denies({"under": "/elsewhere"}, path, paths=LINKED)


def test_other_files_of_the_system_are_followed() -> None:
    for path in ("/proc/cpuinfo", "/proc/selfish", "/dev/null", "/dev/fdx"):
        assert follow(path, LINKED, {}) == Followed(path, loose=False)


def test_links_in_a_circle_are_not_followed_for_ever() -> None:
    with pytest.raises(OSError, match="too many links"):
        follow("/x/z", LINKED, {})
    long = FakePaths(links={f"/l{n}": f"/l{n + 1}" for n in range(MAX_LINKS)})
    assert follow("/l0", long, {}).real == f"/l{MAX_LINKS}"


def test_real_links_are_followed_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "in").symlink_to("a/b")
    (tmp_path / "a" / "up").symlink_to("..")
    paths = RealPaths(str(tmp_path))
    spellings = (
        "in",
        "in/..",
        "in/../up/in/new/../x",
        "a/up/a/./b",
        "none/../in",
        "a/up/none/y",
        "in/f/../..",
    )
    for spelling in spellings:
        path = f"{tmp_path}/{spelling}"
        assert follow(path, paths, {}).real == os.path.realpath(path), spelling


@promise("rules:no-allow-through-links")
def test_a_link_counts_as_loose_where_this_user_can_exchange_it(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/usr")
    paths = RealPaths(str(tmp_path))
    assert follow(f"{tmp_path}/out/bin", paths, {}) == Followed(os.path.realpath("/usr/bin"), loose=True)
    assert not follow(f"{tmp_path}/plain/file", paths, {}).loose
    in_root = next((f"/{name}" for name in os.listdir("/") if os.path.islink(f"/{name}")), None)
    if in_root is not None:  # `/bin` on most systems, `/tmp` on macOS
        assert not follow(in_root, paths, {}).loose


LOOSE = FakePaths(links={"/repo/link": "/repo/src", "/home": "/srv/home"}, writable=frozenset({"/repo"}))


@promise("rules:no-allow-through-links")
def test_an_allow_covers_no_path_through_a_link_that_can_be_exchanged() -> None:
    assert allows({"under": "/repo"}, "src/x", paths=LOOSE)
    assert not allows({"under": "/repo"}, "link/x", paths=LOOSE)
    assert not allows({"under": "/repo"}, ["src/x", "link/x"], paths=LOOSE)
    assert not allows({"under": "/repo/link"}, "src/x", paths=LOOSE)  # nor does one that begins at one
    assert allows({"under": "/home/ada"}, "/srv/home/ada/x", paths=LOOSE)  # `/home` is the system's


def judged(path: Json, *, paths: FakePaths, **rules: list[Json]) -> VerdictKind:
    parsed = [
        rule
        for effect, entries in rules.items()
        for entry in entries
        if (rule := parse_entry(Effect(effect), entry, source=None, base_dir="/repo", paths=paths))
    ]
    call = Call(tool="fs:read", arguments={"path": path}, cwd="/repo")
    return RuleSet(parsed, paths=paths).judge(call, now=NOW).kind


@promise("rules:no-allow-through-links")
def test_where_a_link_might_be_exchanged_for_one_to_what_is_denied_no_allow_counts() -> None:
    deny: list[Json] = [{"tool": "fs:*", "args": {"*": {"under": "~/.ssh"}}}]
    assert judged("src/x", paths=LOOSE, allow=["fs:*"], deny=deny) is VerdictKind.ALLOW
    assert judged("link/x", paths=LOOSE, allow=["fs:*"], deny=deny) is VerdictKind.UNLISTED
    assert judged("link/x", paths=LOOSE, allow=["fs:*"], deny=deny, ask=["fs:*"]) is VerdictKind.ASK
    assert judged("link/x", paths=LOOSE, allow=["fs:*"]) is VerdictKind.ALLOW  # no rule is about paths
    assert judged("link/x", paths=LOOSE, allow=["fs:*"], deny=[*deny, "fs:*"]) is VerdictKind.DENY


def server(**more: object) -> ProcessLaunch:
    return ProcessLaunch(command="fs", **more)  # pyright: ignore


def verdict(
    launch: ProcessLaunch, path: str, *, paths: FakePaths | None = None, **rules: list[Json]
) -> VerdictKind:
    disk = paths or FakePaths()
    parsed = [
        rule
        for effect, entries in rules.items()
        for entry in entries
        if (rule := parse_entry(Effect(effect), entry, source=None, base_dir="/repo", paths=disk))
    ]
    starts = {"fs": launch.starts(workspace="/repo", home=disk.home)}
    call = Call(tool="fs:read", arguments={"path": path}, cwd="/repo")
    return RuleSet(parsed, paths=disk, starts=starts).judge(call, now=NOW).kind


PRIVATE: Json = {"tool": "fs:*", "args": {"path": {"under": "/data/private"}}}
HERE: Json = {"tool": "fs:*", "args": {"path": {"under": "."}}}


@promise("rules:paths-from-every-folder")
@pytest.mark.parametrize(
    "launch",
    [
        server(cwd="/data"),
        server(args=("--root=/data",)),
        server(args=("/opt/fs.js", "/data")),
        server(env={"ROOT": "/data"}),
        server(permissions=Permissions(workspace=Access.NONE), args=("data",), cwd="/"),
    ],
)
def test_a_relative_path_is_judged_from_where_the_server_may_open_it(launch: ProcessLaunch) -> None:
    paths = FakePaths(folders=frozenset({"/data", "//data"}))
    assert verdict(launch, "private/x", paths=paths, deny=[PRIVATE]) is VerdictKind.DENY
    assert verdict(launch, "public/x", paths=paths, deny=[PRIVATE]) is VerdictKind.UNLISTED
    assert verdict(launch, "src/x", paths=paths, allow=[HERE]) is VerdictKind.UNLISTED
    assert verdict(launch, "/repo/src/x", paths=paths, allow=[HERE]) is VerdictKind.ALLOW


@promise("rules:paths-from-every-folder")
def test_a_server_in_a_box_without_the_workspace_opens_paths_elsewhere() -> None:
    boxed = server(permissions=Permissions(workspace=Access.NONE))
    assert verdict(boxed, "data/private/x", deny=[PRIVATE]) is VerdictKind.DENY
    assert verdict(boxed, "src/x", allow=[HERE]) is VerdictKind.UNLISTED


def test_a_server_that_works_in_the_workspace_is_judged_from_there_only() -> None:
    for launch in (server(), server(permissions=Permissions()), server(args=("--verbose", "/opt/fs.js"))):
        assert verdict(launch, "src/x", allow=[HERE]) is VerdictKind.ALLOW


def test_a_home_of_the_servers_own_counts_as_well() -> None:
    launch = server(env={"HOME": "/data/private"})
    assert verdict(launch, "~/x", deny=[PRIVATE]) is VerdictKind.DENY
    notes: Json = {"tool": "fs:*", "args": {"path": {"under": "~"}}}
    assert verdict(launch, "~/x", allow=[notes]) is VerdictKind.UNLISTED
