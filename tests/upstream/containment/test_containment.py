"""What a server in a box can reach, and what it cannot."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from pml.core.errors import Changed, ServerFailed
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.servers.spec import ServerSpec
from pml.upstream.board import list_servers
from pml.upstream.containment import box as containment
from pml.upstream.containment import bubblewrap, landlock
from pml.upstream.containment.box import held, probe
from tests.builders import launch_of, relaunched
from tests.promises import promise
from tests.upstream.boxes import RUNTIME, Prisoner, box, installed, need
from tests.upstream.fleets import ODD, Harbour, odd

BUBBLEWRAP, LANDLOCK, NONE = Containment
SECRET = "the-person-said-no"

Make = Callable[[Harbour], ServerSpec]


def wide(harbour: Harbour) -> ServerSpec:
    return odd()


def narrow(harbour: Harbour) -> ServerSpec:
    return installed(harbour)


def declared(harbour: Harbour) -> ServerSpec:
    """A server that a file names by command, with permissions."""
    return relaunched(odd(), permissions=Permissions(read=(*RUNTIME, str(ODD.parent))))


@pytest.fixture(params=[narrow, declared, wide])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


@pytest.fixture
def port() -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def keep_secret(harbour: Harbour) -> Path:
    harbour.home.mkdir(parents=True, exist_ok=True)
    path = harbour.home / "pml.db"
    path.write_text(SECRET, encoding="utf-8")
    return path


# --- PML's own files


@promise("contain:home-hidden")
async def test_no_server_reads_or_writes_in_the_home_of_pml(
    harbour: Harbour, kind: Containment, make: Make
) -> None:
    secret = keep_secret(harbour)
    server = box(harbour, kind, make(harbour))
    link = harbour.workspace / "link"
    link.symlink_to(secret)
    folder = harbour.workspace / "folder"
    folder.symlink_to(harbour.home)
    for path in (secret, link, folder / "pml.db"):
        assert SECRET not in (await server.sh(f"cat '{path}'"))[1]
    assert not await server.writes(harbour.home / "config.json")
    assert not await server.writes(folder / "config.json")
    await server.sh(f"echo no > '{link}'; rm -f '{secret}'; mv '{harbour.home}' '{harbour.home}.old'")
    assert secret.read_text("utf-8") == SECRET
    assert not (harbour.home / "config.json").exists()


@promise("contain:home-hidden")
async def test_no_server_finds_the_home_of_pml_through_another_process(
    harbour: Harbour, kind: Containment, make: Make
) -> None:
    secret = keep_secret(harbour)
    server = box(harbour, kind, make(harbour))
    mine = f"/proc/{os.getpid()}"
    assert SECRET not in (await server.sh(f"cat {mine}/root{secret} {mine}/cwd/../..{secret}"))[1]
    assert SECRET not in (await server.sh(f"cat /proc/*/root{secret}"))[1]


@promise("contain:home-hidden")
async def test_not_even_the_names_in_the_home_of_pml_are_seen_in_a_box(
    harbour: Harbour, boxed: Containment, make: Make
) -> None:
    keep_secret(harbour)
    (harbour.home / "servers" / "other").mkdir(parents=True)
    found = await box(harbour, boxed, make(harbour)).sh(f"find '{harbour.home}' -name '*'")
    assert "pml.db" not in found[1]
    assert "other" not in found[1]


@promise("contain:home-hidden")
@pytest.mark.parametrize("kind_of_access", [Access.WRITE, Access.READ])
async def test_a_workspace_that_contains_the_home_of_pml_does_not_show_it(
    harbour: Harbour, home: Path, boxed: Containment, kind_of_access: Access
) -> None:
    harbour.workspace = home
    secret = keep_secret(harbour)
    server = box(harbour, boxed, installed(harbour, permissions=Permissions(workspace=kind_of_access)))
    assert not await server.reads(secret)
    assert not await server.writes(harbour.home / "config.json")
    assert await server.can("echo > $HOME/kept")
    assert (harbour.home / "state" / "odd" / "kept").exists()
    assert not await server.can(f"echo > '{harbour.home}/servers/odd/odd.py'")
    assert await server.writes(home / "new") == (kind_of_access is Access.WRITE)


@promise("contain:home-hidden")
async def test_a_workspace_in_the_home_of_pml_is_not_shown(harbour: Harbour, boxed: Containment) -> None:
    secret = keep_secret(harbour)
    harbour.workspace = harbour.home
    server = box(harbour, boxed, installed(harbour))
    assert not await server.reads(secret)
    with pytest.raises(ServerFailed, match="is in PML_HOME"):
        await harbour.fleet(containment=boxed).manifest(odd())


@promise("contain:home-hidden")
async def test_a_home_of_pml_behind_a_link_is_hidden_where_it_really_is(
    harbour: Harbour, tmp_path: Path, kind: Containment, make: Make
) -> None:
    real = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    real.mkdir()
    harbour.home.symlink_to(real)
    secret = keep_secret(harbour)
    server = box(harbour, kind, make(harbour))
    assert not await server.reads(secret)
    assert not await server.reads(real / "pml.db")


@promise("contain:home-hidden")
async def test_declared_folders_open_no_way_into_the_home_of_pml(
    harbour: Harbour, home: Path, boxed: Containment
) -> None:
    secret = keep_secret(harbour)
    link = home / "link"
    link.symlink_to(harbour.home)
    folders = ("/", str(home), str(harbour.home), str(link), str(harbour.home / "logs"))
    for permissions in (
        *(Permissions(read=(folder,)) for folder in folders),
        *(Permissions(write=(folder,), workspace=Access.NONE) for folder in folders),
    ):
        fleet = harbour.fleet(containment=boxed)
        server = Prisoner(fleet, installed(harbour, permissions=permissions))
        assert not await server.reads(secret), permissions
        assert not await server.reads(link / "pml.db"), permissions
        assert not await server.writes(harbour.home / "config.json"), permissions
        await fleet.close()


@promise("contain:home-hidden")
async def test_a_declared_folder_inside_the_home_of_pml_is_not_shown(
    harbour: Harbour, kind: Containment
) -> None:
    vault = harbour.home / "vault"
    vault.mkdir(parents=True)
    (vault / "key").write_text(SECRET, encoding="utf-8")
    link = harbour.home.parent / "link"
    link.symlink_to(vault)
    permissions = Permissions(read=(str(vault), str(link)), write=(str(link),))
    server = box(harbour, kind, installed(harbour, permissions=permissions))
    assert not await server.reads(vault / "key")
    assert not await server.reads(link / "key")


# --- the workspace's file


@promise("contain:config-read-only")
@pytest.mark.parametrize("is_link", [False, True])
async def test_no_server_writes_the_file_of_the_workspace(
    harbour: Harbour, boxed: Containment, make: Make, is_link: bool
) -> None:
    config = harbour.workspace / ".pml.json"
    real = harbour.workspace / "shared.json" if is_link else config
    real.write_text("{}", encoding="utf-8")
    if is_link:
        config.symlink_to(real)
    server = box(harbour, boxed, make(harbour))
    assert await server.reads(config)
    assert not await server.writes(config)
    for command in (
        f"rm '{real}'",
        f"mv '{real}' other",
        f"echo > new && mv new '{real}'",
        f"chmod 0 '{real}'",
    ):
        assert not await server.can(command), command
    assert real.read_text("utf-8") == "{}"


@promise("contain:workspace-pinned")
@pytest.mark.parametrize("exists", [True, False])
async def test_no_server_moves_the_workspace_aside_to_put_another_in_its_place(
    harbour: Harbour, exists: bool
) -> None:
    need(BUBBLEWRAP)
    workspace = harbour.workspace
    config = workspace / ".pml.json"
    if exists:
        config.write_text('{"permissions": {"deny": ["fs:write"]}}', encoding="utf-8")
    (workspace / "kept.txt").write_text("x", encoding="utf-8")
    server = box(harbour, BUBBLEWRAP, wide(harbour))

    for folder in (workspace, *workspace.parents[:-1]):
        aside = folder.with_name(f"{folder.name}-aside")
        assert not await server.can(f"cd / && mv -T '{folder}' '{aside}'"), folder
        assert not aside.exists()
    assert await server.can(f"cd '{workspace}' && mv kept.txt moved.txt && mkdir sub && mv moved.txt sub/")
    assert (workspace / "sub" / "moved.txt").exists()
    assert config.exists() is exists


@promise("contain:workspace-pinned")
async def test_a_server_that_may_write_around_the_workspace_does_not_move_it(harbour: Harbour) -> None:
    need(BUBBLEWRAP)
    around = str(harbour.workspace.parent)
    (harbour.workspace / ".pml.json").write_text("{}", encoding="utf-8")
    permissions = Permissions(read=(*RUNTIME, str(ODD.parent)), write=(around,))
    server = box(harbour, BUBBLEWRAP, relaunched(odd(), permissions=permissions))

    assert await server.can(f"touch '{around}/beside'")
    assert not await server.can(f"cd / && mv -T '{harbour.workspace}' '{around}/aside'")


# --- the network


@promise("contain:no-undeclared-network")
async def test_a_server_reaches_no_network_that_is_not_declared(
    harbour: Harbour, kind: Containment, port: int
) -> None:
    if kind is LANDLOCK and landlock.abi() < 4:
        pytest.skip("Landlock knows nothing of TCP before Linux 6.7")
    assert not await box(harbour, kind, installed(harbour)).connects(port)


@pytest.mark.parametrize("net", [True, ("api.example.com",)])
async def test_a_server_reaches_the_network_that_is_declared(
    harbour: Harbour, kind: Containment, port: int, net: bool | tuple[str, ...]
) -> None:
    assert await box(harbour, kind, installed(harbour, permissions=Permissions(net=net))).connects(port)


# --- the user's files, and its own


@promise("contain:only-declared-folders")
async def test_a_server_reads_nothing_of_its_user_that_is_not_declared(
    harbour: Harbour, home: Path, kind: Containment, tmp_path: Path
) -> None:
    diary, shared = home / "diary", home / "shared"
    diary.write_text(SECRET, encoding="utf-8")
    shared.mkdir()
    (shared / "note").write_text("hello", encoding="utf-8")
    link = harbour.workspace / "link"
    link.symlink_to(diary)
    spec = installed(harbour, permissions=Permissions(read=(str(shared), str(home / "missing"))))
    server = box(harbour, kind, spec)
    assert not await server.reads(diary)
    assert not await server.reads(link)
    await server.writes(home / ".profile")  # it may have a folder of that name to itself
    assert not (home / ".profile").exists()
    assert await server.reads(shared / "note")
    assert not await server.writes(shared / "note")


@promise("contain:only-declared-folders")
async def test_a_declared_folder_that_became_a_link_leads_nowhere_else(
    harbour: Harbour, home: Path, kind: Containment
) -> None:
    (home / "diary").write_text(SECRET, encoding="utf-8")
    (harbour.workspace / "data").symlink_to(home)
    for workspace in (Access.READ, Access.WRITE):
        data = str(harbour.workspace / "data")
        for permissions in (
            Permissions(workspace=workspace, read=(data,)),
            Permissions(workspace=workspace, write=(data,)),
        ):
            fleet = harbour.fleet(containment=kind)
            server = Prisoner(fleet, installed(harbour, permissions=permissions))
            assert not await server.reads(home / "diary"), permissions
            await fleet.close()


@promise("contain:only-declared-folders")
async def test_a_link_that_a_server_made_where_it_may_write_leads_nowhere_at_the_next_start(
    harbour: Harbour, home: Path, kind: Containment
) -> None:
    (home / "diary").write_text(SECRET, encoding="utf-8")
    own = home / "own"
    own.mkdir()
    (own / "data").symlink_to(home)
    permissions = Permissions(write=(str(own),), read=(str(own / "data"),))
    server = box(harbour, kind, installed(harbour, permissions=permissions))
    assert await server.writes(own / "new")
    assert not await server.reads(home / "diary")


@pytest.mark.parametrize("access", Access)
async def test_a_server_has_as_much_of_the_workspace_as_is_declared(
    harbour: Harbour, kind: Containment, access: Access
) -> None:
    (harbour.workspace / "note").write_text("hello", encoding="utf-8")
    server = box(harbour, kind, installed(harbour, permissions=Permissions(workspace=access)))
    assert await server.reads(harbour.workspace / "note") == (access is not Access.NONE)
    assert await server.writes(harbour.workspace / "new") == (access is Access.WRITE)
    here = (await server.sh("pwd"))[1].strip()
    expected = harbour.workspace if access is not Access.NONE else harbour.home / "state" / "odd"
    assert here == str(expected)


async def test_a_server_keeps_its_own_state_and_cannot_change_its_own_files(
    harbour: Harbour, kind: Containment
) -> None:
    server = box(harbour, kind, installed(harbour))
    assert await server.can("echo kept > $HOME/kept")
    assert (harbour.home / "state" / "odd" / "kept").read_text("utf-8") == "kept\n"
    assert await server.can("f=$(mktemp) && echo > $f")
    assert not await server.writes(harbour.home / "servers" / "odd" / "odd.py")


async def test_temporary_files_of_others_are_not_seen(
    harbour: Harbour, kind: Containment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "file"
    other.write_text(SECRET, encoding="utf-8")
    assert not await box(harbour, kind, installed(harbour)).reads(other)


@pytest.mark.parametrize("is_wide", [False, True])
@promise("server:cannot-signal-out")
async def test_the_processes_of_the_user_are_not_seen_in_a_box(
    harbour: Harbour, boxed: Containment, is_wide: bool
) -> None:
    server = box(harbour, boxed, odd() if is_wide else installed(harbour))
    assert not await server.can(f"kill -0 {os.getpid()}")
    assert not await server.can(f"test -e /proc/{os.getpid()}/cmdline && grep -q pytest /proc/*/cmdline")


async def test_what_a_person_named_by_command_finds_all_that_its_user_has(
    harbour: Harbour, home: Path, kind: Containment, port: int, near: Path
) -> None:
    (home / "diary").write_text("dear diary", encoding="utf-8")
    server = box(harbour, kind, odd())
    assert await server.reads(home / "diary")
    assert await server.writes(harbour.workspace / "new")
    assert await server.can("ls /sys && id && git --version && echo > /dev/null && mkdir a && mv new a/new")
    assert await server.connects(port)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(near / "s"))
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(near / 's')!r})"
        assert await server.run(sys.executable, "-c", code) == (True, "")


# --- what cannot be contained


async def test_what_holds_a_server_is_posted(harbour: Harbour, kind: Containment) -> None:
    no_tcp = "no TCP" if landlock.abi() >= 4 else "not limited"
    no_net = "none" if kind is BUBBLEWRAP or landlock.can_filter() else no_tcp
    for spec, words in (
        (installed(harbour), f"contained by {kind} (network: {no_net}, workspace: write)"),
        (odd(), f"contained by {kind}: PML's own files {'hidden' if kind is BUBBLEWRAP else 'unreadable'}"),
    ):
        fleet = harbour.fleet(containment=kind)
        await fleet.manifest(spec)
        [posted] = list_servers(harbour.home)
        assert posted.containment is not None
        assert (posted.containment.kind, posted.containment.words) == (kind, words)
        await fleet.close()


@pytest.mark.parametrize(
    ("command", "net", "words"),
    [
        ("/opt/deno", ("a.example", "b.example:8080"), "a.example, b.example:8080 (held by Deno only)"),
        ("/usr/bin/python3", ("a.example",), "open (declared for a.example)"),
        ("/opt/deno", True, "any"),
    ],
)
def test_what_holds_a_server_to_its_hosts_is_told(
    harbour: Harbour, home: Path, kind: Containment, command: str, net: bool | tuple[str, ...], words: str
) -> None:
    spec = relaunched(installed(harbour, permissions=Permissions(net=net)), command=command)
    found = held(
        kind, spec.name, launch_of(spec), home=harbour.home, user_home=home, workspace=str(harbour.workspace)
    )
    assert found.words == f"contained by {kind} (network: {words}, workspace: write)"
    configured = relaunched(spec, artefact=None)  # by whatever it is run, nobody told that to hold it
    found = held(
        kind,
        configured.name,
        launch_of(configured),
        home=harbour.home,
        user_home=home,
        workspace=str(harbour.workspace),
    )
    assert "Deno" not in found.words


def test_a_server_that_node_runs_is_told_to_lack_the_limits_of_deno(
    harbour: Harbour, home: Path, kind: Containment
) -> None:
    permissions = Permissions(net=("a.example",))
    spec = relaunched(installed(harbour, permissions=permissions), command="/usr/bin/node")
    found = held(
        kind, spec.name, launch_of(spec), home=harbour.home, user_home=home, workspace=str(harbour.workspace)
    )
    assert found.words == (
        f"contained by {kind} "
        "(network: open (declared for a.example), workspace: write, run by node: not held by Deno)"
    )


async def test_a_server_that_nothing_contains_runs_and_is_posted_so(harbour: Harbour) -> None:
    secret = keep_secret(harbour)
    fleet = harbour.fleet(containment=NONE)
    assert await Prisoner(fleet, installed(harbour)).reads(secret)
    [posted] = list_servers(harbour.home)
    assert posted.containment is not None
    assert (posted.containment.kind, posted.containment.words) == (NONE, "not contained")


async def test_landlock_hides_nothing_in_a_folder_that_it_allows_and_says_so(
    harbour: Harbour, home: Path
) -> None:
    need(LANDLOCK)
    harbour.workspace = home
    spec = installed(harbour)
    found = held(LANDLOCK, spec.name, launch_of(spec), home=harbour.home, user_home=home, workspace=str(home))
    assert found.kind is NONE
    assert found.words == f"not contained: Landlock cannot hide PML_HOME inside `{home}`"


@promise("contain:never-weaker-unasked")
@pytest.mark.parametrize(("approved", "now"), [(BUBBLEWRAP, LANDLOCK), (BUBBLEWRAP, NONE), (LANDLOCK, NONE)])
async def test_a_server_is_not_started_with_less_than_was_approved(
    harbour: Harbour, approved: Containment, now: Containment
) -> None:
    spec = installed(harbour, f"tally={harbour.workspace / 'tally'}", containment=approved)
    fleet = harbour.fleet(containment=now)
    with pytest.raises(Changed, match=f"was approved to run contained by {approved}"):
        await Prisoner(fleet, spec).sh("true")
    assert list_servers(harbour.home) == []
    assert list(harbour.workspace.iterdir()) == []


@promise("contain:never-weaker-unasked")
async def test_a_box_that_cannot_be_made_starts_nothing(
    harbour: Harbour, boxed: Containment, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impossible(*_: object, **more: object) -> tuple[str, ...]:
        return ("--unshare-user", "--ro-bind", "/", "/", "--ro-bind", "/no/such/folder", "/mnt")

    monkeypatch.setattr(bubblewrap, "wide", impossible)
    monkeypatch.setattr(bubblewrap, "narrow", impossible)
    with pytest.raises(ServerFailed, match=r"its last words: bwrap: .*/no/such/folder"):
        await Prisoner(harbour.fleet(containment=boxed), make(harbour)).writes(harbour.workspace / "ran")
    assert not (harbour.workspace / "ran").exists()


def test_landlock_that_cannot_be_had_starts_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = (
        "import runpy, sys\n"
        "from pml.upstream.containment import landlock\n"
        "def broken(rules): raise OSError(38, 'function not implemented')\n"
        "landlock.restrict = broken\n"
        f"sys.argv = ['landlock', '{{}}', '--', '/bin/sh', '-c', 'echo > {ran}']\n"
        "landlock.main()\n"
    )
    launched = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert launched.returncode == 1
    assert launched.stderr == "pml: it cannot be contained with Landlock: function not implemented\n"
    assert not ran.exists()


async def test_a_command_out_of_reach_is_told_with_what_to_declare(
    harbour: Harbour, kind: Containment
) -> None:
    program = harbour.home.parent / "program"
    program.symlink_to("/bin/sh")
    spec = relaunched(odd(), permissions=Permissions())
    for each in (
        relaunched(spec, command=str(program)),
        relaunched(spec, command="/bin/sh", cwd=str(ODD.parent)),
    ):
        with pytest.raises(ServerFailed, match="its permissions do not reach") as caught:
            await harbour.fleet(containment=kind).manifest(each)
        assert caught.value.hint == "add its folder to `permissions.read`"


def test_no_variable_switches_containment_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if probe().kind is BUBBLEWRAP and not shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin"):
        pytest.skip("bwrap is not where the system has its programs")
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    fake.chmod(0o755)
    for path in ("", str(tmp_path)):
        monkeypatch.setenv("PATH", path)
        assert bubblewrap.find_bwrap() != str(fake) or probe().kind is not BUBBLEWRAP
        assert containment.probe.__wrapped__() == probe()


def test_no_bwrap_is_taken_from_the_folder_that_pml_is_started_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bubblewrap, "_SYSTEM_PATH", "")
    (tmp_path / "bin").mkdir()
    for fake in (tmp_path / "bwrap", tmp_path / "bin" / "bwrap"):
        fake.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (":", ".", "bin", "./bin::."):
        monkeypatch.setenv("PATH", path)
        assert bubblewrap.find_bwrap() is None, path
    monkeypatch.setenv("PATH", f".:{tmp_path / 'bin'}")
    assert bubblewrap.find_bwrap() == str(tmp_path / "bin" / "bwrap")


def test_why_nothing_stronger_is_to_be_had_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if sys.platform != "linux":
        assert probe().reason == "containing servers needs Linux"
        return
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permission\x1b' >&2; exit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    for program, reason in (
        (None, "bwrap is not installed"),
        (str(broken), "bwrap does not work here: No permission\\u{1b}"),
    ):
        monkeypatch.setattr(bubblewrap, "find_bwrap", lambda program=program: program)
        for abi, kind, more in ((7, LANDLOCK, ""), (0, NONE, ", and this system has no Landlock")):
            monkeypatch.setattr(landlock, "abi", lambda abi=abi: abi)
            assert containment.probe.__wrapped__() == containment.Probed(kind=kind, reason=reason + more)
