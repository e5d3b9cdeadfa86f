"""`mcpServers` of a configuration file: how each MCP server is started.

What would make another program run than the one named, such as `LD_PRELOAD`, is refused. Starting a server,
and whether it may be started at all, is not known here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pml.core.located import Section
from pml.core.permissions import NET_RULE, Access, Containment, Permissions, expected_in
from pml.core.readings import path_readings
from pml.core.rules import Source
from pml.core.scene import Starts
from pml.core.text import quote

# The names of PML's own tools, of the hub on the wire, and of folders that runtimes load code from.
RESERVED: Final = frozenset({"pml", "plexus", "node_modules"})

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOADER_VARIABLE: Final = re.compile(
    r"LD_.*|DYLD_.*|GCONV_PATH"
    r"|BASH_ENV|SHELLOPTS|BASHOPTS"
    r"|NODE_OPTIONS|NODE_PATH|PYTHON.*|RUBYOPT|RUBYLIB|PERL5.*"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|DOTNET_STARTUP_HOOKS"
    r"|GIT_SSH|GIT_SSH_COMMAND|GIT_PROXY_COMMAND|GIT_EXTERNAL_DIFF|GIT_EXEC_PATH|GIT_CONFIG(?:_.*)?",
    re.IGNORECASE,
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
class ServerSpec:
    """How one MCP server is started. The values of `env` may be secrets: they are never shown.

    `permissions` None: it was named by command, and may do what its user may.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    permissions: Permissions | None = None
    source: Source
    artefact: Artefact | None = None


def server_name_problem(name: str) -> str | None:
    """Return why `name` cannot be the name of a server, or None."""
    if not _NAME.fullmatch(name):
        return "is no name for a server: 1 to 64 of `A-Z a-z 0-9 _ -`"
    return "is no name for a server: PML uses it for itself" if name.lower() in RESERVED else None


def variable_problem(name: str) -> str | None:
    """Return why a server may not be given the variable `name`, or None."""
    if not _VARIABLE.fullmatch(name):
        return "is no name for a variable"
    if _LOADER_VARIABLE.fullmatch(name):
        return "changes which code the server runs, and is refused"
    return None


def steering(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide which code a command runs or where it gets it from; no secrets."""
    return {
        name: _LOGIN_IN_URL.sub("//…@", value)
        for name, value in env.items()
        if _STEERING_VARIABLE.fullmatch(name) and not _SECRET_VARIABLE.search(name)
    }


def starts_of(spec: ServerSpec, *, workspace: str, home: str) -> Starts:
    """Return every folder that the server may open a relative path from; `home` is what `~` stands for.

    In a box that does not show the workspace it works elsewhere. Many servers take folders as arguments and
    read paths from there.
    """
    cwd = spec.cwd or workspace
    is_narrow = spec.artefact is not None or spec.permissions is not None
    has_workspace = (spec.permissions or Permissions()).workspace is not Access.NONE
    elsewhere = "/" if spec.artefact is None else spec.artefact.state
    given = [text for each in (*spec.args, *spec.env.values()) for text in (each, each.partition("=")[2])]
    users = spec.env.get("HOME", "")
    return Starts(
        folders=(cwd,) if spec.cwd or has_workspace or not is_narrow else (cwd, elsewhere),
        named=tuple(dict.fromkeys(_in_folder(text, cwd, home) for text in given if text)),
        homes=(users,) if users.startswith("/") else (),
        own=None if spec.artefact is None else spec.artefact.state,
    )


def _in_folder(text: str, cwd: str, home: str) -> str:
    if text.startswith("/"):
        return text
    return home + text[1:] if text == "~" or text.startswith("~/") else f"{cwd}/{text}"


def parse_servers(top: Section, *, base_dir: str, home: str) -> dict[str, ServerSpec]:
    """Return the servers of the file by name. Raises: ConfigInvalid."""
    servers = top.section("mcpServers")
    if servers is None:
        return {}
    for name, key in servers.node.keys.items():
        if problem := server_name_problem(name):
            servers.refuse(name, key, problem)
    return {
        name: _server(name, servers.within(name, node), base_dir=base_dir, home=home)
        for name, node in servers.node.members.items()
    }


def _server(name: str, entry: Section, *, base_dir: str, home: str) -> ServerSpec:
    kind = entry.text("type")
    if "url" in entry.node.members or kind not in (None, "stdio"):
        entry.refuse("", entry.node, "is reached by URL: only servers with a `command` are supported")
    command = entry.text("command")
    if command is None:
        entry.refuse("", entry.node, "has no `command`")
    permissions = entry.section("permissions")
    spec = ServerSpec(
        name=name,
        command=command,
        args=entry.texts("args", may_be_empty=True) or (),
        env=_environment(entry.section("env")),
        cwd=folder(entry, "cwd", base_dir=base_dir, home=home),
        permissions=_permissions(permissions) if permissions else None,
        source=Source(file=entry.path, line=entry.node.line),
    )
    entry.note_unknown()
    return spec


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


def folder(section: Section, key: str, *, base_dir: str, home: str) -> str | None:
    """Return the folder at `key` as an absolute path, or None. Raises: ConfigInvalid."""
    text, node = section.text(key), section.get(key)
    if text is None or node is None:
        return None
    readings = path_readings(text, cwd=base_dir, home=home)
    if not readings:
        section.refuse(key, node, f"must be a folder, not {quote(text)}")
    return readings[0]
