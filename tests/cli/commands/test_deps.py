"""`pml deps`: installed after a person saw it, listed, verified, mended, removed, and tidied up."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest

from pml.app import find_place, open_installer
from pml.core.approvals.record import OwnerId
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Lock, Locked, lock_json
from pml.core.packages.package import Ecosystem
from pml.host.processes import identify
from pml.upstream.board import RunBoard
from tests.cli.terminals import on_terminal
from tests.commands import TIMEOUT_S, Pml, Ran, spawn
from tests.install.python_index import PythonIndex, make_wheel, serve_index
from tests.promises import promise

OK, FAILED, USAGE, DENIED, PENDING, GONE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
GREET: Final = "def main():\n    print('hello')\n"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Generator[PythonIndex]:
    """The only place that packages come from."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with serve_index() as served:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served.url}/simple")
        yield served


@pytest.fixture
def shop(index: PythonIndex, workspace: Path, pml_home: Path, tmp_path: Path) -> "Shop":
    return Shop(index, workspace, pml_home, tmp_path / "registry")


class Shop:
    """A registry folder with the server `greeter`, and a user's file that names the folder."""

    def __init__(self, index: PythonIndex, workspace: Path, pml_home: Path, registry: Path) -> None:
        self.index, self.workspace, self.home, self._registry = index, workspace, pml_home, registry
        registry.mkdir()
        pml_home.mkdir(mode=0o700, exist_ok=True)
        self.configure()
        self.offer()

    def configure(self, **more: Any) -> None:
        (self.home / "config.json").write_text(json.dumps({"registry": str(self._registry), **more}))

    def offer(self, version: str = "1.0", *, verified: bool = True, **more: Any) -> str:
        """Publish a version and return the file name of its wheel."""
        wheel = make_wheel(
            "greeter", version, files={"greeting.py": GREET}, scripts={"greeter": "greeting:main"}
        )
        integrity = str(integrity_of(wheel, Algorithm.SHA256))
        key = f"greeter=={version}"
        locked = Locked(key=key, name="greeter", version=version, integrity=(integrity,))
        lock = Lock(ecosystem=Ecosystem.PYPI, name="greeter", version=version, root=key, packages=(locked,))
        dependency = {
            "name": "greeter",
            "type": "stdio",
            "install": f"uvx greeter=={version}",
            "integrity": integrity if verified else None,
            "lock": lock_json(lock),
            **more,
        }
        entry = {"fqdn": "acme.tools.greeter", "type": "server", "tools": ["greet"], "mcp_deps": [dependency]}
        (self._registry / "greeter.json").write_text(json.dumps(entry))
        return self.index.add("greeter", version, wheel)

    @property
    def trees(self) -> list[str]:
        """The trees that stand there, in use or not."""
        return sorted(path.name for path in (self.home / "servers" / "greeter").glob("*") if path.is_dir())

    @property
    def left_over(self) -> list[str]:
        staging = self.home / "servers" / ".staging"
        return os.listdir(staging) if staging.exists() else []

    def launch(self) -> str:
        """Return the launch digest of the installed server."""
        installer = open_installer(find_place())
        installed = installer.installed("greeter")
        assert installed is not None
        return installer.target_digest(installed)


@pytest.fixture
def runs(shop: Shop) -> Generator["Runs"]:
    posted = Runs(shop)
    yield posted
    posted.end()


class Runs:
    """Processes that the board takes for servers."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._processes: list[subprocess.Popen[bytes]] = []

    def post(self, *, launch: str) -> "subprocess.Popen[bytes]":
        waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        process = subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True)
        self._processes.append(process)
        self._board(len(self._processes)).post(
            "greeter",
            target_digest=launch,
            state="running",
            process=identify(process.pid),
            restarts=0,
            last_error=None,
        )
        return process

    def end(self) -> None:
        for number, process in enumerate(self._processes, start=1):
            process.kill()
            process.communicate()
            self._board(number).take_down("greeter")

    def _board(self, number: int) -> RunBoard:
        """Return the board of one gateway."""
        return RunBoard(self._shop.home, workspace="/elsewhere", owner=OwnerId(f"gateway-{number}"))


def installed(pml: Pml) -> list[dict[str, Any]]:
    return pml("deps", "list", "--json").json["installed"]


def install(pml: Pml) -> dict[str, Any]:
    ran = pml("deps", "install", "greeter", "--yes", "--json")
    assert ran.code == OK
    [server] = ran.json["installed"]
    return server


def damage(server: dict[str, Any]) -> None:
    """Change one file of an installed server and add another."""
    file = Path(server["path"], "site", "greeting.py")
    file.chmod(0o600)
    file.write_text(GREET.replace("hello", "HELLO"))
    file.with_name("more.py").touch()


# --- install


def test_a_server_is_installed_by_command_and_then_listed_and_audited(pml: Pml, shop: Shop) -> None:
    ran = pml("deps", "install", "greeter", "--yes")
    assert ran.code == OK
    assert "installed greeter@1.0: " in ran.out
    [server] = installed(pml)
    assert (server["name"], server["version"], server["proof"]) == ("greeter", "1.0", "verified")
    assert server["size"] > 0
    assert server["path"] in pml("deps", "list").out
    [entry] = [
        entry
        for entry in pml("audit", "list", "--json").json["entries"]
        if entry["kind"] == "dependency.installed"
    ]
    detail = entry["detail"]
    assert (detail["name"], detail["why"], detail["lock"]) == ("greeter", "by command", server["lock"])
    assert pml("deps", "verify").code == OK


def test_what_is_installed_already_is_not_installed_again(pml: Pml, shop: Shop) -> None:
    first = install(pml)
    asked = len(shop.index.asked)
    again = pml("deps", "install", "greeter", "--json")
    assert (again.code, again.json) == (OK, {"installed": [first], "declined": [], "waiting": []})
    assert len(shop.index.asked) == asked


def test_a_person_sees_all_of_it_before_saying_yes(shop: Shop, pml: Pml) -> None:
    shop.offer(env_required=["GREETER_KEY"])
    with on_terminal("deps", "install", "greeter", stdout_too=True) as terminal:
        shown = terminal.until("[y/N] ")
        assert shop.trees == []
        terminal.type("y\n")
        code, _ = terminal.end()
    assert code == OK
    for fact in ("uvx greeter==1.0", "sha256-", "1 package", "GREETER_KEY", "workspace: none", "sha256:"):
        assert fact in shown
    assert "pml secrets set GREETER_KEY" in terminal.screen
    [server] = installed(pml)
    assert server["lock"] in shown


@pytest.mark.parametrize("answer", ["n\n", "\n", "yep\n", "\x04"])
def test_every_answer_but_yes_installs_nothing(shop: Shop, pml: Pml, answer: str) -> None:
    with on_terminal("deps", "install", "greeter", stdout_too=True) as terminal:
        terminal.until("[y/N] ")
        terminal.type(answer)
        code, _ = terminal.end()
    assert code == DENIED
    assert "greeter@1.0 is not installed" in terminal.screen
    assert installed(pml) == []


@promise("deps:asks-before-installing")
def test_where_nobody_can_answer_nothing_is_installed(shop: Shop, pml: Pml) -> None:
    ran = pml("deps", "install", "greeter")
    assert ran.code == PENDING
    assert "--yes" in ran.err
    ran = pml("deps", "install", "greeter", "--json")
    assert ran.code == PENDING
    [waiting] = ran.json["waiting"]
    assert waiting["dependency"]["name"] == "greeter"
    assert ran.json["installed"] == installed(pml) == shop.index.asked == []


def test_without_integrity_nothing_is_installed_unless_the_user_allows_that(shop: Shop, pml: Pml) -> None:
    shop.offer(verified=False)
    ran = pml("deps", "install", "greeter", "--yes")
    assert ran.code == FAILED
    assert "Integrity check failed for greeter@1.0" in ran.err
    assert "install.allow_unverified" in ran.err
    assert installed(pml) == shop.index.asked == []
    shop.configure(install={"allow_unverified": True})
    with on_terminal("deps", "install", "greeter", stdout_too=True) as terminal:
        assert terminal.until("[y/N] ").count("UNVERIFIED") == 2
        terminal.type("y\n")
        assert terminal.end()[0] == OK
    assert installed(pml)[0]["proof"] == "unverified"
    assert "UNVERIFIED" in pml("deps", "list").out


def test_bytes_that_are_not_those_of_the_lock_are_not_installed(shop: Shop, pml: Pml) -> None:
    file = shop.offer()
    shop.index.bodies[file] = make_wheel("greeter", "1.0", files={"greeting.py": "import os\n"})
    ran = pml("deps", "install", "greeter", "--yes")
    assert ran.code == FAILED
    assert "Integrity check failed for greeter@1.0" in ran.err
    assert installed(pml) == shop.trees == shop.left_over == []


def test_a_server_that_a_file_configures_is_not_installed(shop: Shop, pml: Pml) -> None:
    path = shop.workspace / ".pml.json"
    path.write_text(json.dumps({"mcpServers": {"greeter": {"command": "greet"}}}))
    ran = pml("deps", "install", "greeter", "--yes")
    assert ran.code == FAILED
    assert f"is configured in {path}:1" in ran.err
    assert installed(pml) == []


@pytest.mark.parametrize("rule", ["*", "greeter:*", "gre*:*", "greeter:greet"])
def test_a_server_of_which_a_deny_leaves_nothing_is_not_installed(shop: Shop, pml: Pml, rule: str) -> None:
    shop.configure(permissions={"deny": [rule]})
    ran = pml("deps", "install", "greeter", "--yes")
    assert ran.code == DENIED
    assert "is denied by your own file" in ran.err
    assert installed(pml) == shop.index.asked == []


def test_while_a_file_is_broken_nothing_is_installed(shop: Shop, pml: Pml) -> None:
    (shop.workspace / ".pml.json").write_text('{"permissions": {"deny": ["greeter:*"}')
    assert pml("deps", "install", "greeter", "--yes").code == FAILED
    assert installed(pml) == []


def test_a_name_that_nobody_knows_is_told(shop: Shop, pml: Pml) -> None:
    ran = pml("deps", "install", "nobody", "--yes")
    assert ran.code == GONE
    assert "no server `nobody` in the catalog or in the registry" in ran.err
    for verb in ("verify", "remove"):
        assert pml("deps", verb, "nobody").code == GONE
    assert pml("deps", "install", "-x").code == USAGE


@promise("deny:beats-grants")
def test_a_name_that_nobody_knows_is_told_with_what_to_do(pml: Pml, workspace: Path) -> None:
    near = pml("deps", "install", "memroy", "--yes")
    assert (near.code, "did you mean `memory`?" in near.err) == (GONE, True)
    far = pml("deps", "install", "zzz", "--yes")
    assert "`pml catalog list` shows the catalog; `registry` in a configuration file names" in far.err
    (workspace / ".pml.json").write_text(json.dumps({"registry": "https://registry.test"}))
    untrusted = pml("deps", "install", "zzz", "--yes")
    assert (untrusted.code, "is not trusted: look at it with `pml trust`" in untrusted.err) == (GONE, True)


def test_a_deny_written_while_the_question_was_open_is_kept(shop: Shop, pml: Pml) -> None:
    with on_terminal("deps", "install", "greeter", stdout_too=True) as terminal:
        terminal.until("[y/N] ")
        shop.configure(permissions={"deny": ["greeter:*"]})
        terminal.type("y\n")
        code, _ = terminal.end()
    assert code == DENIED
    assert "is denied by your own file" in terminal.screen
    assert installed(pml) == shop.trees == []


def test_a_right_to_install_unverified_that_was_taken_back_meanwhile_counts(shop: Shop, pml: Pml) -> None:
    shop.offer(verified=False)
    shop.configure(install={"allow_unverified": True})
    with on_terminal("deps", "install", "greeter", stdout_too=True) as terminal:
        terminal.until("[y/N] ")
        shop.configure()
        terminal.type("y\n")
        assert terminal.end()[0] == FAILED
    assert installed(pml) == []


@promise("agent:cannot-decide")
@pytest.mark.usefixtures("agent")
def test_beneath_an_agent_nothing_is_installed_removed_or_tidied_up(shop: Shop, pml: Pml) -> None:
    for argv in (("install", "greeter", "--yes"), ("install", "greeter"), ("remove", "greeter"), ("gc",)):
        ran = pml("deps", *argv)
        assert ran.code == FAILED
        assert "agent session `the-agent`" in ran.err
    assert installed(pml) == shop.index.asked == []


def test_an_interrupted_install_leaves_nothing(shop: Shop, pml: Pml) -> None:
    file = shop.offer()
    shop.index.endless.add(file)
    with spawn(["deps", "install", "greeter", "--yes"]) as process:
        until = time.monotonic() + TIMEOUT_S
        while f"/files/{file}" not in shop.index.asked:
            assert time.monotonic() < until
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err.splitlines()[-1]) == (INTERRUPTED, "pml: interrupted")
    assert installed(pml) == shop.trees == shop.left_over == []


# --- verify


def test_verify_names_the_files_that_changed_and_an_install_mends_them(shop: Shop, pml: Pml) -> None:
    server = install(pml)
    damage(server)
    ran = pml("deps", "verify")
    assert ran.code == FAILED
    assert "greeter@1.0 HAS CHANGED" in ran.out
    assert "\n  ~ site/greeting.py\n" in ran.out
    assert "\n  + site/more.py\n" in ran.out
    assert "pml deps install greeter" in ran.err
    [told] = pml("deps", "verify", "greeter", "--json").json["verified"]
    assert (told["ok"], told["changed"]) == (False, ["~ site/greeting.py", "+ site/more.py"])
    ran = pml("deps", "install", "greeter")
    assert ran.code == PENDING
    assert "~ site/greeting.py" in ran.err
    assert install(pml)["tree"] == server["tree"]
    ran = pml("deps", "verify", "--json")
    assert (ran.code, [each["ok"] for each in ran.json["verified"]]) == (OK, [True])


def test_verify_notices_a_change_that_hides_behind_the_old_times(shop: Shop, pml: Pml) -> None:
    file = Path(install(pml)["path"], "site", "greeting.py")
    assert pml("deps", "verify").code == OK
    before = file.stat()
    file.chmod(0o600)
    file.write_text(GREET.replace("hello", "HELLO"))
    file.chmod(0o400)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert pml("deps", "verify").code == FAILED


def test_verify_finds_that_all_files_are_gone(shop: Shop, pml: Pml) -> None:
    server = install(pml)
    os.rename(server["path"], shop.home / "elsewhere")
    ran = pml("deps", "verify")
    assert ran.code == FAILED
    assert "folder is missing" in ran.out
    assert "missing" in pml("deps", "list").out


def test_with_nothing_installed_there_is_nothing_to_list_verify_or_tidy_up(pml: Pml) -> None:
    assert "`pml catalog list`" in pml("deps", "list").out
    assert pml("deps", "verify").out == "nothing is installed\n"
    assert pml("deps", "gc", "--json").json == {"freed": 0, "running": []}


def test_files_that_a_person_accepted_are_listed_as_such(shop: Shop, pml: Pml) -> None:
    damage(install(pml))
    [told] = pml("deps", "verify", "--json").json["verified"]
    asyncio.run(open_installer(find_place()).accept("greeter", tree=told["got"]))
    assert installed(pml)[0]["proof"] == "accepted"
    ran = pml("deps", "verify")
    assert (ran.code, ran.out) == (OK, "greeter@1.0 is as it was accepted\n")


# --- one that is damaged


def lose(server: dict[str, Any]) -> None:
    os.rename(server["path"], Path(server["path"]).parents[2] / "elsewhere")


def lose_the_starter(server: dict[str, Any]) -> None:
    Path(server["path"], "start", "greeter.py").unlink()


def become_a_link(server: dict[str, Any]) -> None:
    lose(server)
    os.symlink(Path(server["path"]).parents[2] / "elsewhere", server["path"])


def be_for_another_python(server: dict[str, Any]) -> None:
    file = Path(server["path"]).parents[2] / "deps.json"
    record = json.loads(file.read_text())
    record["installed"]["greeter"]["runtime"] = "python3.2"
    file.write_text(json.dumps(record))


DAMAGES: Final = [damage, lose, lose_the_starter, become_a_link, be_for_another_python]


@promise("deps:damage-stays-local")
@pytest.mark.parametrize("harm", DAMAGES)
def test_a_damaged_server_is_listed_and_an_install_mends_it(
    shop: Shop, pml: Pml, harm: Callable[[dict[str, Any]], None]
) -> None:
    server = install(pml)
    harm(server)
    assert [each["name"] for each in installed(pml)] == ["greeter"]
    assert pml("deps", "verify").code == (OK if harm is be_for_another_python else FAILED)
    again = install(pml)
    assert (again["tree"], pml("deps", "verify").code) == (server["tree"], OK)
    place = find_place()
    installer = open_installer(place)
    found = installer.installed("greeter")
    assert found is not None
    asyncio.run(installer.prove(installer.launch(found, workspace=str(place.workspace))))


@promise("deps:damage-stays-local")
@pytest.mark.parametrize("harm", DAMAGES)
def test_a_damaged_server_is_removed_like_any_other(
    shop: Shop, pml: Pml, runs: Runs, harm: Callable[[dict[str, Any]], None]
) -> None:
    server = install(pml)
    from_it = runs.post(launch=shop.launch())
    harm(server)
    assert pml("deps", "remove", "greeter").out == "stopped greeter in /elsewhere\nremoved greeter@1.0\n"
    assert from_it.wait(TIMEOUT_S) == -signal.SIGTERM
    assert installed(pml) == shop.trees == []


def test_a_home_behind_a_link_is_the_same_home(
    shop: Shop, pml: Pml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = install(pml)
    link = tmp_path / "link"
    link.symlink_to(shop.home)
    monkeypatch.setenv("PML_HOME", str(link))
    assert [each["path"] for each in installed(pml)] == [first["path"]]
    assert pml("deps", "verify").code == OK
    shop.offer("2.0")
    second = install(pml)
    monkeypatch.setenv("PML_HOME", str(shop.home))
    assert [each["path"] for each in installed(pml)] == [second["path"]]


# --- remove and gc


def test_removing_takes_the_files_and_leaves_what_the_server_keeps(shop: Shop, pml: Pml) -> None:
    install(pml)
    kept = shop.home / "state" / "greeter" / "notes.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("remember")
    ran = pml("deps", "remove", "greeter", "--json")
    assert (ran.code, ran.json["removed"]["name"], ran.json["stopped"]) == (OK, "greeter", [])
    assert installed(pml) == shop.trees == []
    assert kept.read_text() == "remember"


@promise("deps:gc-keeps-what-runs")
def test_removing_stops_what_runs_from_the_files_and_keeps_those_of_what_still_runs(
    shop: Shop, pml: Pml, runs: Runs
) -> None:
    install(pml)
    older = runs.post(launch=shop.launch())
    shop.offer("2.0")
    install(pml)
    from_it = runs.post(launch=shop.launch())
    trees = shop.trees
    ran = pml("deps", "remove", "greeter")
    assert ran.code == OK
    assert ran.out.startswith("stopped greeter in /elsewhere\nremoved greeter@2.0\n  its files were kept: ")
    assert from_it.wait(TIMEOUT_S) == -signal.SIGTERM
    assert older.poll() is None
    assert (installed(pml), shop.trees, len(trees)) == ([], trees, 2)
    runs.end()
    assert pml("deps", "gc").code == OK
    assert shop.trees == []


def test_removing_what_nothing_else_runs_from_keeps_no_file(shop: Shop, pml: Pml) -> None:
    install(pml)
    ran = pml("deps", "remove", "greeter", "--json")
    assert (ran.json["kept"], shop.trees) == ([], [])


def versions(ran: Ran) -> list[str]:
    return [server["version"] for server in ran.json["installed"]]


def test_gc_removes_older_versions_and_what_was_left_over(shop: Shop, pml: Pml) -> None:
    install(pml)
    shop.offer("2.0")
    second = install(pml)
    assert len(shop.trees) == 2
    (shop.home / "servers" / ".staging" / "left").mkdir()
    (shop.home / "servers" / "lost+found").mkdir()
    ran = pml("deps", "gc")
    assert ran.code == OK
    assert ran.out.startswith("freed ")
    assert shop.trees == [Path(second["path"]).name]
    assert shop.left_over == []
    assert pml("deps", "verify").code == OK
    assert pml("deps", "gc").out == "there was nothing to remove\n"


@promise("deps:gc-keeps-what-runs")
def test_gc_keeps_every_version_of_a_server_that_runs(shop: Shop, pml: Pml, runs: Runs) -> None:
    install(pml)
    runs.post(launch=shop.launch())
    shop.offer("2.0")
    install(pml)
    assert pml("deps", "gc", "--json").json == {"freed": 0, "running": ["greeter"]}
    assert len(shop.trees) == 2
    runs.end()
    assert pml("deps", "gc", "--json").json["freed"] > 0
    assert len(shop.trees) == 1


def test_another_version_takes_the_place_of_the_one_in_use(shop: Shop, pml: Pml) -> None:
    install(pml)
    shop.offer("2.0")
    ran = pml("deps", "install", "greeter", "--yes")
    assert ran.code == OK
    assert "another lock was accepted before" in ran.out
    shop.offer("3.0")
    [waiting] = pml("deps", "install", "greeter", "--json").json["waiting"]
    assert waiting["dependency"]["in_use"] == "2.0"
    assert versions(pml("deps", "list", "--json")) == ["2.0"]


@pytest.mark.parametrize("verb", ["list", "install", "verify", "remove", "gc"])
def test_every_verb_has_help_with_examples(pml: Pml, verb: str) -> None:
    ran = pml("deps", verb, "--help")
    assert ran.code == OK
    assert f"  pml deps {verb}" in ran.out
    assert "--json" in ran.out
