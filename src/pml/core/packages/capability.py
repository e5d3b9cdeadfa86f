"""Metadata of a capability or server in a registry: typed, and checked field by field.

`install` is a command line as people write it: understood, never executed. Where metadata comes from, and
whether anything is installed, is not known here.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from pml.core.digest import digest
from pml.core.errors import Invalid
from pml.core.names import Fqdn, ToolName, parse_fqdn
from pml.core.packages.fields import Fields, shown
from pml.core.packages.install_line import parse_install
from pml.core.packages.integrity import NO_PROOF, parse_integrity
from pml.core.packages.lock import Lock, check_lock_of, lock_in, lock_json
from pml.core.packages.package import Package
from pml.core.packages.permissions import NO_REACH, Access, Permissions, permissions_in, permissions_json
from pml.core.packages.shell_words import check_placeholders
from pml.core.rules.readings import host_readings
from pml.core.servers.process_launch import variable_problem
from pml.core.servers.spec import server_name_problem
from pml.core.text import has_hidden, quote, visible_json
from pml.core.values import Json, JsonObject, loads_object

MAX_TOOLS: Final = 1_000
MAX_DEPENDENCIES: Final = 50
MAX_DESCRIPTION: Final = 10_000

_MAX_ITEMS: Final = 100
_MAX_CHARS: Final = 4_096
_LOCK_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_RELATIVE: Final = re.compile(r"(?!//)[A-Za-z0-9._~/@-]+")
# these steer the runtime that a server is started with, and the proof and containment around it
_RUNTIME_VARIABLE: Final = re.compile(
    r"PATH|HOME|PML_.*|DENO_.*|UV_.*|NPM_CONFIG_.*|NODE_(?!ENV$).*", re.IGNORECASE
)


class CapabilityType(StrEnum):
    DENO = "deno"
    PYTHON = "python"
    SERVER = "server"


class Routing(StrEnum):
    CLIENT = "client"
    SERVER = "server"


class Status(StrEnum):
    """What the official registry says of a server."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    DELETED = "deleted"


class McpDependency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An MCP server that can be installed; `name` is the namespace of its tools.

    `args` and the values of `env` may say `${workspace}` and `${state}`, the server's own folder. `lock` is
    the whole closure, or its digest, or not given. No `integrity`: the install is unverified.
    `says_workspace`: its metadata names what it sees of the workspace, be it nothing. `mcp_name`: the package
    must name this server of the official registry itself, or it is not installed. `status` is what that
    registry says of the server, if it is not active; a deleted one must be approved as such.
    """

    name: str
    install: str
    package: Package
    integrity: str | None = None
    env_required: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    lock: Lock | str | None = None
    args: tuple[str, ...] = ()
    permissions: Permissions  # without a default: what is recorded of an install always has them
    says_workspace: bool = True
    mcp_name: str | None = None
    status: Status | None = None

    @property
    def version(self) -> str:
        return self.package.version

    @property
    def title(self) -> str:
        """`memory@1.2.3`, as people read it."""
        return f"{self.name}@{self.version}"

    @property
    def argv(self) -> tuple[str, ...]:
        """What its server is started with: the arguments of the install line, then `args`."""
        return (*self.package.args, *self.args)

    def terms(self, lock: str) -> str:
        """Return the digest of all that an approval to install it with `lock` binds."""
        listed: dict[str, Json] = {} if self.mcp_name is None else {"mcp_name": self.mcp_name}
        if self.status is Status.DELETED:
            listed["status"] = self.status
        return digest(
            {
                **listed,
                "name": self.name,
                "lock": lock,
                "integrity": self.integrity,
                "env_required": sorted(self.env_required),
                "env": dict(self.env),
                "package": self.package.spec,
                "ecosystem": self.package.ecosystem,
                "tool": self.package.tool,
                "args": self.argv,
                "permissions": permissions_json(self.permissions),
            }
        )

    def former_terms(self, lock: str) -> str | None:
        """Return the terms that it had while metadata that does not name `workspace` meant all of it."""
        if self.says_workspace:
            return None
        permissions = replace(self.permissions, workspace=Access.WRITE)
        return replace(self, permissions=permissions).terms(lock)


class CapabilityMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One registry entry. `tools` are MCP tool definitions, or only their names: actions of its namespace."""

    fqdn: Fqdn
    type: CapabilityType
    routing: Routing = Routing.CLIENT
    code_url: str | None = None
    code_integrity: str | None = None
    description: str | None = None
    tools: tuple[JsonObject, ...] = ()
    mcp_deps: tuple[McpDependency, ...] = ()

    def dependency(self, namespace: str) -> McpDependency | None:
        """Return the dependency whose server has the tools of `namespace`."""
        return next((dep for dep in self.mcp_deps if dep.name == namespace), None)


def parse_metadata(data: bytes, *, what: str) -> CapabilityMetadata:
    """Return the metadata that `data`, which is `what`, holds. Raises: Invalid, naming the field."""
    return metadata_in(Fields(what=what, value=loads_object(data, what=what)))


def metadata_in(fields: Fields) -> CapabilityMetadata:
    """Return the metadata that `fields` are. Raises: Invalid, naming the field."""
    fqdn = _fqdn(fields)
    kind = fields.choice("type", CapabilityType)
    if kind is None:
        fields.missing("type", '`"deno"`, `"python"` or `"server"`')
    return CapabilityMetadata(
        fqdn=fqdn,
        type=kind,
        routing=fields.choice("routing", Routing) or Routing.CLIENT,
        code_url=_code_url(fields),
        code_integrity=_integrity(fields, "code_integrity"),
        description=fields.text("description", most=MAX_DESCRIPTION),
        tools=_tools(fields, fqdn.namespace),
        mcp_deps=_dependencies(fields),
    )


def metadata_json(metadata: CapabilityMetadata) -> JsonObject:
    """Return `metadata` as a registry serves it: what `parse_metadata` reads."""
    optional: dict[str, Json] = {
        "code_url": metadata.code_url,
        "code_integrity": metadata.code_integrity,
        "description": metadata.description,
        "mcp_deps": [dependency_json(dependency) for dependency in metadata.mcp_deps] or None,
    }
    return {
        "fqdn": str(metadata.fqdn),
        "type": metadata.type.value,
        "routing": metadata.routing.value,
        "tools": list(metadata.tools),
        **{key: value for key, value in optional.items() if value is not None},
    }


def parse_dependency(value: Json, *, what: str) -> McpDependency:
    """Return the dependency that `value`, which is `what`, describes. Raises: Invalid, naming the field."""
    if not isinstance(value, Mapping):
        raise Invalid(f"{what} must be an object, not {shown(value)}")
    return _dependency(Fields(what=what, value=value))


def dependency_json(dependency: McpDependency) -> JsonObject:
    """Return `dependency` as a registry serves it: what `parse_dependency` reads."""
    lock = dependency.lock
    optional: dict[str, Json] = {
        "env_required": list(dependency.env_required),
        "env": dict(dependency.env),
        "lock": lock_json(lock) if isinstance(lock, Lock) else lock,
        "args": list(dependency.args),
        "permissions": _declared(dependency),
        "mcp_name": dependency.mcp_name,
        "status": dependency.status,
    }
    return {
        "name": dependency.name,
        "type": "stdio",
        "install": dependency.install,
        "version": dependency.version,
        "integrity": dependency.integrity,
        **{key: value for key, value in optional.items() if value},
    }


def _declared(dependency: McpDependency) -> JsonObject:
    """Return the permissions as metadata has them: `workspace` exactly where it was named."""
    permissions = dependency.permissions
    named = {"workspace": permissions.workspace.value} if dependency.says_workspace else {}
    others = {key: each for key, each in (permissions_json(permissions) or {}).items() if key != "workspace"}
    return {**others, **named}


def _fqdn(fields: Fields) -> Fqdn:
    text = fields.text("fqdn", most=_MAX_CHARS)
    if text is None:
        fields.missing("fqdn", "`org.project.namespace.action` or `org.project.name`")
    return fields.checked("fqdn", lambda: parse_fqdn(text))


def _code_url(fields: Fields) -> str | None:
    url = fields.text("code_url", most=_MAX_CHARS)
    if url is None:
        return None
    if _SCHEME.match(url):
        is_sound = url.lower().startswith(("http://", "https://")) and bool(host_readings(url))
    else:
        is_sound = bool(_RELATIVE.fullmatch(url)) and ".." not in url.split("/")
    if not is_sound:
        fields.refuse("code_url", "an `https:` or `http:` URL, or a path below the registry's")
    return url


def _integrity(fields: Fields, key: str) -> str | None:
    text = fields.text(key, most=_MAX_CHARS)
    return None if text is None else str(parse_integrity(text, what=fields.named(key)))


def _tools(fields: Fields, namespace: str) -> tuple[JsonObject, ...]:
    found: dict[str, JsonObject] = {}
    for index, item in enumerate(fields.items("tools", most=MAX_TOOLS)):
        key = f"tools[{index}]"
        tool: Json = {"name": item} if isinstance(item, str) else item
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(tool, Mapping) or not isinstance(name, str):
            fields.refuse(key, "the name of a tool, or an object with its `name`", value=item)
        name = name.removeprefix(f"{namespace}:")
        fields.checked(key, lambda name=name: ToolName(namespace=namespace, action=name))
        if name in found:
            fields.refuse(key, "a tool that is not there before", value=name)
        found[name] = {**tool, "name": name}
    return tuple(found.values())


def _dependencies(fields: Fields) -> tuple[McpDependency, ...]:
    found: dict[str, McpDependency] = {}
    for index, inner in enumerate(fields.sections("mcp_deps", most=MAX_DEPENDENCIES)):
        dependency = _dependency(inner)
        folded = dependency.name.lower()  # their folders must differ also where file names ignore case
        if folded in found:
            fields.refuse(f"mcp_deps[{index}].name", "a name that is not there before", value=dependency.name)
        found[folded] = dependency
    return tuple(found.values())


def _dependency(fields: Fields) -> McpDependency:
    name = fields.text("name", most=_MAX_CHARS)
    if name is None:
        fields.missing("name", "the namespace of the server's tools")
    if problem := server_name_problem(name):
        raise Invalid(f"{fields.named('name')}: {quote(name)} {problem}")
    if fields.get("type") != "stdio":
        fields.refuse("type", '`"stdio"`')
    _refuse_weak_proof(fields)
    install, package = _install(fields)
    permissions = fields.section("permissions")
    env_required, env = _environment(fields)
    return McpDependency(
        name=name,
        install=install,
        package=package,
        integrity=_integrity(fields, "integrity"),
        env_required=env_required,
        env=env,
        lock=_lock(fields, package),
        args=_args(fields),
        permissions=NO_REACH if permissions is None else permissions_in(permissions),
        says_workspace=permissions is not None and permissions.get("workspace") is not None,
        mcp_name=fields.text("mcp_name", most=_MAX_CHARS),
        status=fields.choice("status", Status),
    )


def _refuse_weak_proof(fields: Fields) -> None:
    """Refuse a hash that is said, in `integrity` or beside it, to be of package.json alone."""
    for key in fields.value:
        value = fields.get(key)
        if key.lower().startswith("integrity") and "package.json" in visible_json(value).lower():
            raise Invalid(f"{fields.named(key)} is {shown(value)}: {NO_PROOF}")


def _install(fields: Fields) -> tuple[str, Package]:
    line = fields.text("install", most=_MAX_CHARS)
    if line is None:
        fields.missing("install", "a line like `npx name@1.2.3` or `uvx name==1.2.3`")
    version = fields.text("version", most=_MAX_CHARS)
    return line, fields.checked("install", lambda: parse_install(line, version=version))


def _environment(fields: Fields) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the variables that a person must set, and those with fixed values."""
    required = fields.texts("env_required", most=_MAX_ITEMS, each=_MAX_CHARS)
    fixed = fields.texts_by_name("env", most=_MAX_ITEMS, each=_MAX_CHARS)
    seen: set[str] = set()
    for key, name in [
        *((f"env_required[{index}]", name) for index, name in enumerate(required)),
        *((f"env.{name}", name) for name in fixed),
    ]:
        if problem := _variable_problem(name):
            raise Invalid(f"{fields.named(key)}: {quote(name)} {problem}")
        if name in seen:
            raise Invalid(f"{fields.named(key)}: {quote(name)} is named twice")
        seen.add(name)
    for name, value in fixed.items():
        _check_value(fields, f"env.{name}", value)
    return required, fixed


def _variable_problem(name: str) -> str | None:
    if _RUNTIME_VARIABLE.fullmatch(name):
        return "steers how PML starts the server, and is refused"
    return variable_problem(name)


def _args(fields: Fields) -> tuple[str, ...]:
    args = fields.texts("args", most=_MAX_ITEMS, each=_MAX_CHARS, may_be_empty=True)
    for index, arg in enumerate(args):
        _check_value(fields, f"args[{index}]", arg)
    return args


def _check_value(fields: Fields, key: str, value: str) -> None:
    if has_hidden(value):
        raise Invalid(f"{fields.named(key)} has hidden characters: {quote(value)}")
    fields.checked(key, lambda: check_placeholders(value))


def _lock(fields: Fields, package: Package) -> Lock | str | None:
    value = fields.get("lock")
    if isinstance(value, str):
        if not _LOCK_DIGEST.fullmatch(value):
            fields.refuse("lock", "an object, or `sha256:` and 64 hex digits")
        return value
    inner = fields.section("lock")
    if inner is None:
        return None
    lock = lock_in(inner)
    fields.checked(
        "lock",
        lambda: check_lock_of(lock, ecosystem=package.ecosystem, name=package.name, version=package.version),
    )
    return lock
