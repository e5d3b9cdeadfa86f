"""The checks of `pml doctor` that concern Claude Code: is it there, is it set up, and does it really ask PML.

The proof runs the real client against a scripted model, with a home and a PML of its own that are gone
afterwards. Nothing of the user's is read but settings, and nothing is changed.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pml.agents.allowances import allowances
from pml.agents.claude_code.form_hooks import config_folder, settings_files
from pml.agents.claude_code.gateway_name import SERVER, gateway_names
from pml.cli.checks.setup import Check, Status
from pml.cli.claude_code.init import asks_itself, project_settings
from pml.cli.claude_code.registration import is_this_pml, own_gateway, own_server
from pml.core.errors import PmlError, Unavailable
from pml.core.text import visible
from pml.core.values import Json, JsonObject
from pml.host.processes import SystemProcesses
from pml.host.watched import watched

if TYPE_CHECKING:
    from pml.agents.claude_code.probe import Proof, Trial
    from pml.app import Place

_GET_IT: Final = "npm install -g @anthropic-ai/claude-code"
_SET_UP: Final = "`pml init --claude-code` sets it up; `--print` shows how"
_ANEW: Final = "`pml init --claude-code` writes it again"
_READY_S: Final = 30.0  # a hub is there within a second
_STEERING: Final = (
    "PML_",
    "PYTHON",
    "LD_",
    "DYLD_",
)  # variables that decide what a hook runs, or whom it asks
_NAME: Final = "claude prompts"
_OR: Final = "or set `approval.unlisted` to `every_call`, and `approval.enabled` to true, in your config.json"
_WRITTEN_ANEW: Final = "`pml init --claude-code` writes it again"


def check_client() -> tuple[str | None, Check]:
    """Return where Claude Code is, and what is to be said of it."""
    from pml.agents.claude_code.probe import version_of
    from pml.agents.claude_code.settings import SINCE

    claude = shutil.which("claude")
    if claude is None:
        return None, Check(
            name="claude",
            status=Status.ABSENT,
            message="not found; needed to launch and hook Claude Code",
            hint=_GET_IT,
        )
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-") as home:
            version = version_of(claude, home=Path(home), path=_path())
    except Unavailable as exc:
        return None, Check(name="claude", status=Status.WARN, message=visible(exc.message), hint=exc.hint)
    if version is None:
        message = f"{visible(claude)} does not tell its version, as Claude Code does"
        return None, Check(name="claude", status=Status.WARN, message=message, hint=_GET_IT)
    shown = ".".join(map(str, version))
    if version < SINCE:
        since = ".".join(map(str, SINCE))
        message = f"{visible(claude)} {shown}: before {since} a hook that fails lets the tool run"
        return claude, Check(name="claude", status=Status.WARN, message=message, hint="update it")
    return claude, Check(name="claude", status=Status.OK, message=f"{visible(claude)} {shown}")


def check_set_up(place: "Place") -> Iterator[Check]:
    """Yield whether the client's settings hold the hook and the server, and what in them goes round PML."""
    from pml.agents.claude_code.form_hooks import config_folder, settings_files
    from pml.cli.claude_code.init import mcp_files
    from pml.cli.claude_code.registration import client_file, own_server

    hooks = 0
    for path in settings_files(config_folder(os.environ, place.user_home), [place.workspace]):
        try:
            found, warnings = _look_at_settings(path)
        except PmlError as exc:
            yield Check(name="claude settings", status=Status.WARN, message=visible(exc.message))
            continue
        hooks += found
        yield from warnings
    yield Check(name="claude hook", status=Status.OK, message="set up") if hooks else _absent("hook", "tools")
    own = own_server(place)
    if own is not None:
        yield from _doubled(place)
    servers = [(path, server) for path in mcp_files(place) for server in _servers_in(path, place)]
    servers += [] if own is None else [(client_file(place), own)]
    if not servers:
        yield _absent("server", "MCP servers")
    off = next(_disabling(place), None)
    for path, server in servers:
        if off is not None or server.get("disabled") is True:
            message = f"{visible(str(off or path))} disables it: no tool behind PML is offered"
            hint = "enable it in Claude Code with `/mcp`, or edit that file"
            yield Check(name="claude server", status=Status.WARN, message=message, hint=hint)
        else:
            yield _check_server(path, server)


def _doubled(place: "Place") -> Iterator[Check]:
    from pml.cli.claude_code.listed_gateways import doubles

    for path, command in doubles(place):
        message = f"{visible(str(path))} starts PML a second time, as `pml`: every tool is offered twice"
        yield Check(name="claude server", status=Status.WARN, message=message, hint=f"`{command}`")


def _disabling(place: "Place") -> Iterator[Path]:
    """Yield the files that tell Claude Code not to start PML's gateway in this workspace."""
    from pml.agents.claude_code.form_hooks import config_folder, settings_files
    from pml.agents.claude_code.gateway_name import gateway_names
    from pml.agents.claude_code.settings import read_settings
    from pml.cli.claude_code.init import mcp_files

    names = gateway_names(place.home, str(place.workspace))
    settings = settings_files(config_folder(os.environ, place.user_home), [place.workspace])
    for path in (*settings, *mcp_files(place)):
        with contextlib.suppress(PmlError, ValueError):
            top = _object(json.loads(read_settings(path) or "{}"))
            project = _object(_object(top.get("projects")).get(str(place.workspace)))
            for key in ("disabledMcpjsonServers", "disabledMcpServers"):
                for listed in (top.get(key), project.get(key)):
                    if isinstance(listed, list | tuple) and any(name in listed for name in names):
                        yield path


def _absent(what: str, whose: str) -> Check:
    message = f"not set up here: Claude Code's {whose} do not ask PML"
    return Check(name=f"claude {what}", status=Status.ABSENT, message=message, hint=_SET_UP)


def _check_server(path: Path, server: JsonObject) -> Check:
    """Tell whether a configured gateway can be started and is this PML; it is not run: a project names it."""
    from pml.cli.claude_code.registration import is_this_pml

    shown, command = visible(str(path)), server.get("command")
    if not isinstance(command, str):  # a hub, by its URL
        return Check(name="claude server", status=Status.OK, message="set up")
    found = shutil.which(command)
    if found is None:
        return Check(
            name="claude server",
            status=Status.FAIL,
            message=f"{shown} starts `{visible(command)}`, which is not there: no tool behind PML is offered",
            hint=_ANEW,
        )
    if not is_this_pml(server):
        message = f"{shown} starts `{visible(found)}`, which is not this PML"
        return Check(name="claude server", status=Status.WARN, message=message, hint=_ANEW)
    return Check(name="claude server", status=Status.OK, message="set up")


def _look_at_settings(path: Path) -> tuple[int, list[Check]]:
    """Return how many hooks of PML's a file has, and what is wrong in it. Raises: as `read_settings`."""
    from pml.agents.claude_code.form_hooks import why_scripted
    from pml.agents.claude_code.settings import hook_commands, read_settings

    text = read_settings(path)
    if text is None:
        return 0, []
    shown = visible(str(path))
    commands = hook_commands(text, path)
    gone = [words[0] for words in commands if shutil.which(words[0]) is None]
    checks = [
        Check(
            name="claude hook",
            status=Status.FAIL,
            message=f"{shown} starts `{visible(program)}`, which is not there: every tool is blocked",
            hint=_ANEW,
        )
        for program in gone
    ]
    settings = _object(json.loads(text))
    if settings.get("disableAllHooks") is True:
        message = f"{shown} turns all hooks off: no tool asks PML"
        hint = f"remove `disableAllHooks` from {shown}"
        checks.append(Check(name="claude settings", status=Status.WARN, message=message, hint=hint))
    steering = [name for name in _object(settings.get("env")) if name.startswith(_STEERING)]
    if steering:
        message = f"{shown} sets {', '.join(map(visible, steering))} for every hook, also for PML's"
        checks.append(
            Check(name="claude settings", status=Status.WARN, message=message, hint=f"edit {shown}")
        )
    if (why := why_scripted(path)) is not None:
        message = f"{why}: a form's answer does not decide trust and launches"
        hint = f"remove it from {shown}, or decide those with `pml approvals` or `pml inbox`"
        checks.append(Check(name="claude forms", status=Status.WARN, message=message, hint=hint))
    return len(commands), checks


def _servers_in(path: Path, place: "Place") -> list[JsonObject]:
    """Return PML's gateway as an MCP configuration gives it to the client here; a broken one has none."""
    from pml.agents.claude_code.gateway_name import SERVER
    from pml.agents.claude_code.settings import read_settings, server_in
    from pml.cli.claude_code.registration import local_server

    try:
        text = read_settings(path)
        if text is None:
            return []
        found = (server_in(text, SERVER, path), local_server(path, str(place.workspace), SERVER))
        return [server for server in found if server is not None]
    except PmlError:
        return []


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def check_proof(claude: str, progress: Callable[[str], None]) -> Iterator[Check]:
    """Yield whether the client, set up as PML sets it up, asks before a tool: by the hook, and by permit."""
    for name, what, proving in (
        ("hook proof", "the hook", _prove_hook),
        ("permit proof", "the permission tool", _prove_permit),
    ):
        progress(f"proving that Claude Code asks {what}")
        try:
            problem = proving(claude).problem
        except (PmlError, OSError) as exc:
            problem = exc.message if isinstance(exc, PmlError) else exc.strerror
        if problem is None:
            message = f"proven: what a rule denies did not run, what a rule allows did, and {what} was asked"
            yield Check(name=name, status=Status.OK, message=message)
        else:
            hint = "update Claude Code and PML; until then do not rely on it"
            yield Check(name=name, status=Status.FAIL, message=visible(problem or "failed"), hint=hint)


def _prove_hook(claude: str) -> "Proof":
    """Raises: Unavailable."""
    from pml.agents.claude_code.probe import PRINTING, prove
    from pml.agents.claude_code.settings import hook_command, hook_settings

    with _trial() as (trial, home, pml_home):
        settings = home / "settings.json"
        # Its own rules allow everything: only the hook stands between the model and the command.
        allowing = {"permissions": {"allow": ["Bash"]}}
        command = hook_command(sys.executable, str(pml_home))
        settings.write_text(json.dumps({**allowing, **hook_settings(command)}))
        options = [*PRINTING, "--settings", str(settings)]
        return prove(claude, trial, home=home, path=_path(), options=options)


def _prove_permit(claude: str) -> "Proof":
    """Raises: Unavailable."""
    from pml.agents.claude_code.claude_run import ASKING, config_files, headless_options
    from pml.agents.claude_code.probe import prove
    from pml.core.sessions.agent import Order

    with _trial() as (trial, home, pml_home), _hub(pml_home, home, trial.folder) as (url, token):
        for name, content in config_files(url, token, ASKING).items():
            (home / name).write_bytes(content)
        (home / ".claude").mkdir()
        allowing = {"permissions": {"allow": ["Bash"]}}
        (home / ".claude" / "settings.json").write_text(json.dumps(allowing))  # must not apply
        options = headless_options(home, Order(prompt="", cwd=str(trial.folder)))
        return prove(claude, trial, home=home, path=_path(), options=options)


@contextmanager
def _trial() -> "Generator[tuple[Trial, Path, Path]]":
    """Yield a trial, a home for the client and a PML_HOME with the trial's rules, gone afterwards."""
    from pml.agents.claude_code.probe import new_trial

    # Not named after PML: a command that names it, or a folder of it, is asked of a person.
    with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as folder:
        top = Path(folder).resolve()
        work, home, pml_home = top / "work", top / "home", top / "kept"
        for path in (work, home, pml_home):
            path.mkdir(mode=0o700)
        trial = new_trial(work)
        (pml_home / "config.json").write_text(json.dumps(trial.rules))
        yield trial, home, pml_home


@contextmanager
def _hub(pml_home: Path, home: Path, workspace: Path) -> Generator[tuple[str, str]]:
    """Yield the URL of a hub of its own, and a token for one session. Raises: Unavailable."""
    environment = {"HOME": str(home), "PATH": _path(), "PML_HOME": str(pml_home), "LANG": "C.UTF-8"}
    made = _pml(["token", "create", "--role", "session", "--json"], environment, workspace)
    with (
        subprocess.Popen(
            _command(["serve", "--port", "0", "--json"]),
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as hub,
        watched(SystemProcesses().find(hub.pid)),
    ):
        try:
            yield _url_of(hub), json.loads(made)["token"]
        finally:
            hub.terminate()
            try:
                hub.communicate(timeout=_READY_S)
            except subprocess.TimeoutExpired:
                hub.kill()


def _url_of(hub: "subprocess.Popen[str]") -> str:
    """Return where the hub is, from the object it prints when it is ready. Raises: Unavailable."""
    assert hub.stdout is not None
    printed = ""
    for line in hub.stdout:  # ends with the hub, which ends if it cannot serve
        printed += line
        if line.startswith("}"):
            break
    url = _object(json.loads(printed or "{}")).get("url")
    if not isinstance(url, str):
        raise Unavailable(f"the hub did not start: {visible(' '.join(printed.split()))}")
    return url


def _pml(words: Sequence[str], environment: dict[str, str], workspace: Path) -> str:
    ran = subprocess.run(
        _command(words),
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_READY_S,
        check=False,
    )
    if ran.returncode != 0:
        raise Unavailable(f"`pml {words[0]}` failed: {visible(ran.stderr.strip())}")
    return ran.stdout


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-m", "pml", *words]


def _path() -> str:
    return os.pathsep.join(os.get_exec_path())


def check_left(place: "Place") -> Iterator[Check]:
    """Yield what is to be said where settings let the tools of a gateway run without Claude Code asking."""
    names = gateway_names(place.home, str(place.workspace))
    for path in settings_files(config_folder(os.environ, place.user_home), [place.workspace]):
        entries: dict[str, str] = dict(reversed(allowances(path, names)))
        for name, entry in entries.items():
            yield _check(place, name, entry, path)


def _check(place: "Place", name: str, entry: str, path: Path) -> Check:
    shown = f"{visible(str(path))} lets the tools of `{name}` run without asking"
    if not asks_itself(place):
        message = f"{shown}, and PML leaves unlisted tools to the client or does not ask: nobody does"
        is_inits = path == project_settings(place) and entry == f"mcp__{name}" and name != SERVER
        where = f"--workspace {shlex.quote(str(place.workspace))}"
        removal = f"`pml init --claude-code {where}`" if is_inits else f"remove `{visible(entry)}` from it"
        hint = f"run {removal} now" if is_inits else removal
        return Check(name=_NAME, status=Status.FAIL, message=message, hint=f"{hint}; {_OR}")
    if name == SERVER:
        message = f"{shown}: a project's .mcp.json can give that name to another server"
        return Check(name=_NAME, status=Status.WARN, message=message, hint=_WRITTEN_ANEW)
    own = own_server(place)
    if own is None or not is_this_pml(own):
        message = f"{shown}, but that name does not start this PML"
        return Check(name=_NAME, status=Status.FAIL, message=message, hint=_WRITTEN_ANEW)
    message = f"one question a call: Claude Code leaves the tools of `{name}` to PML"
    return Check(name=_NAME, status=Status.OK, message=message)


def check_name(place: "Place") -> Iterator[Check]:
    """Yield whether the client itself, asked for PML's name, starts this PML."""
    own = own_server(place)
    gateway = None if own is None or not is_this_pml(own) else own_gateway(place)
    if gateway is None:  # what is not this PML is not started
        return
    try:
        problem = gateway.problem()
    except PmlError as exc:
        problem = exc.message
    if problem is not None:
        yield Check(name="claude name", status=Status.FAIL, message=visible(problem), hint=_WRITTEN_ANEW)
        return
    message = f"proven: Claude Code starts this PML as `{gateway.name}`, whatever the project's files name so"
    yield Check(name="claude name", status=Status.OK, message=message)
