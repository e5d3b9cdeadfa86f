"""The launch of a server's process: command, arguments, environment, and what it may reach.

What would make another program run than the one named, such as `LD_PRELOAD`, is refused. Starting it, and
whether it may be started at all, is not known here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pml.core.config.section import Section
from pml.core.digest import digest
from pml.core.packages.permissions import (
    NET_RULE,
    Access,
    Containment,
    Permissions,
    expected_in,
    permissions_json,
)
from pml.core.rules.places import Starts
from pml.core.rules.readings import path_readings
from pml.core.servers.expansion import Expander, expansion_problem
from pml.core.servers.process_facts import ProcessFacts
from pml.core.text import quote, visible_json
from pml.core.values import JsonObject

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOADER_VARIABLE: Final = re.compile(
    r"LD_.*|DYLD_.*|GCONV_PATH"
    r"|BASH_ENV|SHELLOPTS|BASHOPTS"
    r"|NODE_OPTIONS|NODE_PATH|PYTHON.*|RUBYOPT|RUBYLIB|PERL5.*"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|DOTNET_STARTUP_HOOKS"
    r"|GIT_SSH|GIT_SSH_COMMAND|GIT_PROXY_COMMAND|GIT_EXTERNAL_DIFF|GIT_EXEC_PATH|GIT_CONFIG(?:_.*)?",
    re.IGNORECASE,
)
# of those above, by name: they switch how Python writes, and load nothing
_HARMLESS_VARIABLE: Final = frozenset(
    {
        *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONHASHSEED"),
        *("PYTHONFAULTHANDLER", "PYTHONASYNCIODEBUG", "PYTHONTRACEMALLOC", "PYTHONNODEBUGRANGES"),
        *("PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHON_COLORS"),
    }
)
# these a server may be given, but whoever trusts the file must see them
_STEERING_VARIABLE: Final = re.compile(
    r"PATH|HOME|XDG_.*|PML_.*|DENO_.*|NODE_(?!ENV$).*|BUN_.*|NPM_CONFIG_.*|YARN_.*|PNPM_.*|COREPACK_.*"
    r"|VOLTA_.*|NVM_.*|UV_.*|PIP_.*|VIRTUAL_ENV|PYENV_.*|CARGO_.*|RUST.*|GO.*|GEM_.*|CLASSPATH|PHPRC|LUA_.*"
    r"|GIT_.*|SSH_ASKPASS|DOCKER_.*|(?:.*_)?PROXY|SSL_CERT_.*|(?:REQUESTS|CURL)_CA_BUNDLE|OPENSSL_CONF"
    r"|SHELL|BROWSER|EDITOR|PAGER|.*_(?:BINARY|EXECUTABLE)_PATH|USERPROFILE|(?:LOCAL)?APPDATA",
    re.IGNORECASE,
)
_SECRET_VARIABLE: Final = re.compile(
    r"(?<!go)auth|token|secret|passw|credential|(?:^|_)key(?!ring)", re.IGNORECASE
)
_WHOLE_LINE: Final = re.compile(r"([A-Za-z0-9_.+-]+)\s+(\S.*)", re.DOTALL)  # no path, and words after it
_LOGIN_IN_URL: Final = re.compile(r"//[^/?#\\@\s]*@")  # not where the host would end before the `@`


@dataclass(frozen=True, kw_only=True, slots=True)
class Artefact:
    """An installed server: the folder that is proven before each start, and what an approval bound.

    `needs` are folders and files outside it that the server's runtime is made of; `state` is its own.
    """

    version: str
    terms: str
    path: str
    tree: str
    state: str
    needs: tuple[str, ...]
    env_required: tuple[str, ...]
    containment: Containment
    is_accepted: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A server's entry as its file has it, with variables where the values of `ProcessLaunch` have theirs.

    `unset` are those of `names` that have no value: the server cannot be started. `later` are stored as
    secrets, and filled in just before it is.
    """

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None
    names: tuple[str, ...]
    unset: tuple[str, ...]
    values: Mapping[str, str] = field(repr=False)
    later: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessLaunch:
    """A process that serves a server's name. The values of `env` may be secrets: they are never shown.

    `permissions` None: it was named by command, and may do what its user may. `written` None: its entry has
    no variables. Where it has some, values of theirs are shown nowhere either.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    permissions: Permissions | None = None
    artefact: Artefact | None = None
    written: Written | None = None

    @property
    def shown(self) -> "ProcessLaunch | Written":
        """The entry as it may be shown: with the names of variables, not with their values."""
        return self.written or self

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of PML's own environment that its entry names."""
        return () if self.written is None else self.written.names

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables that it cannot be started without, and that are not set."""
        return () if self.written is None else self.written.unset

    @property
    def later(self) -> tuple[str, ...]:
        """The variables whose stored values it is given when it is started."""
        return () if self.written is None else self.written.later

    def filled(self, values: Mapping[str, str]) -> "ProcessLaunch":
        """Return it with the values of `later`; its digest is the same."""
        if self.written is None or not self.written.later:
            return self
        written, expander = self.written, Expander({**self.written.values, **values})
        return replace(
            self,
            args=tuple(map(expander, written.args)),
            env={name: expander(value) for name, value in written.env.items()},
            written=replace(written, values=expander.values),
        )

    @property
    def secrets(self) -> Mapping[str, str]:
        """The values that may be secrets, by name: those of its variables, and what its entry was given."""
        if self.written is None:
            return self.env
        values = self.written.values
        return {**{name: values[name] for name in values if name not in steering(values)}, **self.env}

    @property
    def line(self) -> str:
        """What is started, in a line that may be shown."""
        return " ".join((self.shown.command, *self.shown.args))

    def digest(self) -> str:
        """Return the digest of how it is started: any other command or value is another server.

        An installed server is what was approved, and what of it was accepted since, wherever it lies. One
        whose entry has variables is the same whatever their values: its pins tell when it would start
        another program.
        """
        if self.artefact is not None:
            accepted = self.artefact.tree if self.artefact.is_accepted else None
            return digest({"terms": self.artefact.terms, "accepted": accepted})
        entry = self.shown
        return digest(
            {
                "command": entry.command,
                "args": entry.args,
                "env": entry.env,
                "cwd": entry.cwd,
                "permissions": permissions_json(self.permissions),
            }
        )

    def facts(self, name: str) -> ProcessFacts:
        """Return what a person is shown who is asked to let the server `name` be started so."""
        shown = self.shown
        return ProcessFacts(
            name=name,
            command=shown.command,
            args=shown.args,
            cwd=shown.cwd,
            env_names=tuple(self.env),
            steering=steering(shown.env),
            permissions=permissions_json(self.permissions),
            variables=self.variables,
            unset=self.unset,
            program=None if self.command == shown.command else self.command,
        )

    def start_json(self, name: str) -> JsonObject:
        """Return how the server `name` is started; of its variables only the names."""
        shown = self.shown
        return {
            "name": name,
            "command": shown.command,
            "args": shown.args,
            "cwd": shown.cwd,
            "env_names": tuple(self.env),
            "path": shown.env.get("PATH"),
            "permissions": permissions_json(self.permissions),
            "variables": self.variables,
            "unset": self.unset,
        }

    def starts(self, *, workspace: str, home: str) -> Starts:
        """Return every folder that it may open a relative path from; `home` is what `~` stands for.

        In a box that does not show the workspace it works elsewhere. Many servers take folders as arguments
        and read paths from there.
        """
        cwd = self.cwd or workspace
        is_narrow = self.artefact is not None or self.permissions is not None
        has_workspace = (self.permissions or Permissions()).workspace is not Access.NONE
        elsewhere = "/" if self.artefact is None else self.artefact.state
        given = [text for each in (*self.args, *self.env.values()) for text in (each, each.partition("=")[2])]
        users = self.env.get("HOME", "")
        return Starts(
            folders=(cwd,) if self.cwd or has_workspace or not is_narrow else (cwd, elsewhere),
            named=tuple(dict.fromkeys(_in_folder(text, cwd, home) for text in given if text)),
            homes=(users,) if users.startswith("/") else (),
            own=None if self.artefact is None else self.artefact.state,
        )


def _in_folder(text: str, cwd: str, home: str) -> str:
    if text.startswith("/"):
        return text
    return home + text[1:] if text == "~" or text.startswith("~/") else f"{cwd}/{text}"


def variable_problem(name: str) -> str | None:
    """Return why a server may not be given the variable `name`, or None."""
    if not _VARIABLE.fullmatch(name):
        return "is not a name for a variable"
    if _LOADER_VARIABLE.fullmatch(name) and name not in _HARMLESS_VARIABLE:
        return "changes which code the server runs, and is refused"
    return None


def steering(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide which code a command runs or where it gets it from; no secrets."""
    return {
        name: _LOGIN_IN_URL.sub("//…@", value)
        for name, value in env.items()
        if _STEERING_VARIABLE.fullmatch(name) and not _SECRET_VARIABLE.search(name)
    }


def parse_launch(entry: Section, *, base_dir: str, home: str, environ: Mapping[str, str]) -> ProcessLaunch:
    """Return what the entry of a server starts; `environ` has the values of variables in it.

    Raises: ConfigInvalid.
    """
    command = entry.text("command")
    if command is None:
        entry.refuse("", entry.node, "has no `command`")
    if split := split_command(command):
        entry.refuse("command", entry.node.members["command"], "is a whole command line", hint=split)
    permissions = entry.section("permissions")
    args, env = entry.texts("args", may_be_empty=True) or (), _environment(entry.section("env"))
    _refuse_foreign(entry)
    expander, steers = Expander(environ), steering(env)
    launch = ProcessLaunch(
        command=expander.now(command),
        args=tuple(map(expander, args)),
        env={name: expander.now(env[name]) if name in steers else expander(env[name]) for name in env},
        cwd=folder(entry, "cwd", base_dir=base_dir, home=home, expand=expander.now),
        permissions=_permissions(permissions) if permissions else None,
    )
    entry.note_unknown()
    if not launch.command:
        entry.refuse("command", entry.node.members["command"], f"{quote(command)} is empty when expanded")
    written = Written(
        command=command,
        args=args,
        env=env,
        cwd=entry.text("cwd"),
        names=tuple(expander.names),
        unset=tuple(expander.unset),
        values=expander.values,
        later=tuple(name for name in expander.later if name not in expander.unset),
    )
    return replace(launch, written=written) if written.names else launch


def split_command(command: str) -> str | None:
    """Return how to write a whole command line that stands as `command`; None for what can be a program."""
    line = _WHOLE_LINE.fullmatch(command)
    if line is None or command.lower().endswith(".exe"):
        return None
    program, words = line[1], line[2].split()
    args = ", ".join(visible_json(word, indent=None) for word in words)
    return f'PML starts a program without a shell: write `"command": "{program}", "args": [{args}]`'


def missing_command(command: str) -> str:
    """Return what to do about a program that is not there."""
    if any(character.isspace() for character in command):
        return "only a program stands in `command`: the words after it belong into `args`"
    return "install it, or give its whole path as `command`"


def _refuse_foreign(entry: Section) -> None:
    """Raise ConfigInvalid for a variable, anywhere in the entry, that cannot be expanded."""
    for key in ("command", "cwd", "args", "env"):
        node = entry.get(key)
        for each in () if node is None else (node, *node.items, *node.members.values()):
            if isinstance(each.value, str) and (problem := expansion_problem(each.value)):
                entry.refuse(key, each, problem)


def _environment(env: Section | None) -> dict[str, str]:
    if env is None:
        return {}
    for name, key in env.node.keys.items():
        if problem := variable_problem(name):
            env.refuse(name, key, problem)
    return {name: env.as_text(name, node, may_be_empty=True) for name, node in env.node.members.items()}


def _permissions(section: Section) -> Permissions:
    permissions = Permissions(
        net=_net(section),
        workspace=section.choice("workspace", Access) or Access.WRITE,
        read=_reach(section, "read"),
        write=_reach(section, "write"),
        run=_reach(section, "run"),
    )
    section.note_unknown()
    return permissions


def _net(section: Section) -> bool | tuple[str, ...]:
    node = section.get("net")
    if node is None or isinstance(node.value, bool):
        return node is not None and node.value is True
    if not isinstance(node.value, list):
        section.expect(NET_RULE, "net", node)
    return _reach(section, "net")


def _reach(section: Section, key: str) -> tuple[str, ...]:
    texts, node = section.texts(key) or (), section.get(key)
    for index, text in enumerate(texts):
        if node is not None and (expected := expected_in(key, text)):
            section.refuse(f"{key}[{index}]", node.items[index], f"must be {expected}, not {quote(text)}")
    return texts


def folder(
    section: Section, key: str, *, base_dir: str, home: str, expand: Callable[[str], str] = str
) -> str | None:
    """Return the folder at `key` as an absolute path, or None. Raises: ConfigInvalid."""
    text, node = section.text(key), section.get(key)
    if text is None or node is None:
        return None
    readings = path_readings(expand(text), cwd=base_dir, home=home)
    if not readings:
        section.refuse(key, node, f"must be a folder, not {quote(text)}")
    return readings[0]
