"""An MCP bundle (`.mcpb`): its manifest, typed and checked, and the dependency that it becomes.

A bundle is known by the hash of its one file. Nobody's tool verifies the signatures that it may carry, so PML
does not claim to. How it is unpacked, and where it comes from, is not known here.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from pml.core.errors import Invalid
from pml.core.packages.capability import McpDependency, Status, parse_dependency
from pml.core.packages.fields import Fields
from pml.core.packages.install_line import bundle_line, bundle_name
from pml.core.packages.integrity import Integrity
from pml.core.packages.lock import Lock, Locked, check_lock
from pml.core.packages.offer import Missing, check_answer
from pml.core.packages.package import Ecosystem, is_version
from pml.core.packages.permissions import Access, Permissions, permissions_json
from pml.core.packages.server_json import Input
from pml.core.text import has_hidden, quote, visible
from pml.core.values import Json, loads_object

MANIFEST: Final = "manifest.json"

_MOST: Final = 100
_CHARS: Final = 4_096
_HERE: Final = "${__dirname}"
_TREE: Final = "${tree}"
_PLACE: Final = re.compile(r"\$\{([^}]*)\}")
_ASKED: Final = re.compile(r"\$\{user_config\.([A-Za-z0-9_.-]+)\}")
_PYTHON_PATH: Final = "PYTHONPATH"
_RUNTIMES: Final = {
    "node": frozenset({"node"}),
    "python": frozenset({"python", "python3", "python.exe"}),
}


class BundleKind(StrEnum):
    NODE = "node"
    PYTHON = "python"
    BINARY = "binary"


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifest says. `args` and `env` are templates with `${user_config.key}` and `${tree}`.

    `imports` are the folders, within the bundle, that Python code is also looked for in.
    """

    name: str
    version: str
    description: str
    kind: BundleKind
    entry: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    imports: tuple[str, ...]
    inputs: tuple[Input, ...]
    several: frozenset[str]
    """The keys of inputs that take several values, one a line."""


def parse_manifest(data: bytes, *, what: str, platform: str) -> BundleManifest:
    """Return the manifest for `platform`: `linux`, `darwin` or `win32`.

    Raises: Invalid, naming the field; also for a bundle that PML does not start, with the reason.
    """
    fields = Fields(what=what, value=loads_object(data, what=what))
    server = fields.section("server")
    if server is None:
        fields.missing("server", "what is started")
    kind = _kind(server)
    _check_platform(fields, platform)
    entry = server.text("entry_point", most=_CHARS)
    if entry is None:
        server.missing("entry_point", "the file that is started")
    entry = _inner(server, "entry_point", entry)
    config = _config(server, platform)
    command, args, env = config
    inputs, several = _inputs(fields)
    imports = env.pop(_PYTHON_PATH, None)
    return BundleManifest(
        name=visible(fields.text("name", most=200) or ""),
        version=_version(fields),
        description=visible(fields.text("description", most=_CHARS) or ""),
        kind=kind,
        entry=entry,
        args=tuple(_template(server, text, inputs) for text in _own_args(server, kind, entry, command, args)),
        env={name: _template(server, text, inputs) for name, text in env.items()},
        imports=_imports(server, imports),
        inputs=inputs,
        several=several,
    )


def bundle_dependency(
    manifest: BundleManifest,
    *,
    origin: str,
    integrity: Integrity,
    size: int | None,
    name: str,
    permissions: Permissions,
    answers: Mapping[str, str] | None = None,
    secrets: Collection[str] = (),
    status: Status | None = None,
) -> McpDependency:
    """Return how the bundle at `origin` is installed and started under `name`, with its whole lock.

    Files and folders that a person names are what it may reach, beside `permissions`. `secrets` are optional
    sensitive inputs that a person will set, by key. Raises: Missing; Invalid.
    """
    given = _Given(manifest, answers or {}, secrets)
    args = [word for text in manifest.args for word in given.words(text)]
    env: dict[str, Json] = {}
    required: list[str] = []
    for variable, text in manifest.env.items():
        if given.has_secret(text):
            required += [variable] if given.wants(text) else []
        elif (value := given.text(text)) is not None:
            env[variable] = value
    given.check()
    shape: dict[str, Json] = {
        "name": name,
        "type": "stdio",
        "install": bundle_line(origin),
        "version": manifest.version,
        "integrity": str(integrity),
        "args": args,
        "env": env,
        "env_required": required,
        "permissions": permissions_json(given.reach(permissions)) or {},
        "status": None if status in (None, Status.ACTIVE) else status.value,
    }
    dependency = parse_dependency(shape, what=f"the manifest of {quote(bundle_name(origin))}")
    return replace(dependency, lock=_lock(manifest, dependency, str(integrity), size))


def kind_of_lock(lock: Lock) -> BundleKind:
    """Return what the locked bundle is. Raises: Invalid."""
    kind = lock.packages[0].detail.get("kind")
    if kind not in list(BundleKind):
        raise Invalid(f"the lock of {quote(lock.name)} does not say what kind of bundle it is")
    return BundleKind(str(kind))


def _lock(manifest: BundleManifest, dependency: McpDependency, integrity: str, size: int | None) -> Lock:
    package = dependency.package
    key = package.spec
    locked = Locked(
        key=key,
        name=package.name,
        version=package.version,
        integrity=(integrity,),
        detail={"kind": manifest.kind.value},
    )
    lock = Lock(
        ecosystem=Ecosystem.MCPB,
        name=package.name,
        version=package.version,
        root=key,
        packages=(locked,),
        size=size,
    )
    return check_lock(lock)


def _kind(server: Fields) -> BundleKind:
    if server.get("type") == "uv":
        raise Invalid(
            f"{server.named('type')} is `uv`: it brings no packages along, and what it would "
            "download when it starts has no hash",
            hint="if it is on PyPI, add it from there: `pml add 'uvx name==1.2.3'`",
        )
    kind = server.choice("type", BundleKind)
    if kind is None:
        server.missing("type", "`node`, `python` or `binary`")
    return kind


def _check_platform(fields: Fields, platform: str) -> None:
    compatibility = fields.section("compatibility")
    platforms = () if compatibility is None else compatibility.texts("platforms", most=10, each=50)
    if platforms and platform not in platforms:
        raise Invalid(f"{fields.what} is for {', '.join(map(quote, platforms))}, not for {quote(platform)}")


def _version(fields: Fields) -> str:
    version = fields.text("version", most=100)
    if version is None or not is_version(version, Ecosystem.MCPB):
        fields.refuse("version", "one exact version, such as `1.2.3`")
    return version


def _inner(fields: Fields, key: str, path: str) -> str:
    """Return the path of a file within the bundle. Raises: Invalid for one that leads out of it."""
    plain = path.removeprefix(f"{_HERE}/").removeprefix("./")
    parts = plain.split("/")
    if (
        not plain
        or plain.startswith("/")
        or ".." in parts
        or "\\" in plain
        or has_hidden(plain)
        or "$" in plain
    ):
        fields.refuse(key, "a path within the bundle", value=path)
    return "/".join(part for part in parts if part not in ("", "."))


def _config(server: Fields, platform: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Return command, arguments and variables, those of the platform first."""
    config = server.section("mcp_config")
    if config is None:
        server.missing("mcp_config", "how it is started")
    overrides = config.section("platform_overrides")
    own = None if overrides is None else overrides.section(platform)
    chosen = [each for each in (own, config) if each is not None]
    command = next((text for each in chosen if (text := each.text("command", most=_CHARS))), None)
    if command is None:
        config.missing("command", "what is started")
    args = next((each for each in chosen if each.get("args") is not None), config)
    env: dict[str, str] = {}
    for each in reversed(chosen):
        env |= each.texts_by_name("env", most=_MOST, each=_CHARS)
    return command, args.texts("args", most=_MOST, each=_CHARS, may_be_empty=True), env


def _own_args(
    server: Fields, kind: BundleKind, entry: str, command: str, args: Sequence[str]
) -> tuple[str, ...]:
    """Return the arguments of the server itself, behind the file that is started."""
    if kind is BundleKind.BINARY:
        if _inner(server, "mcp_config.command", command) != entry:
            server.refuse("mcp_config.command", f"its `entry_point` {quote(entry)}", value=command)
        return tuple(args)
    if command not in _RUNTIMES[kind]:
        server.refuse("mcp_config.command", " or ".join(map(quote, sorted(_RUNTIMES[kind]))), value=command)
    if not args or not args[0].startswith(_HERE) or _inner(server, "mcp_config.args", args[0]) != entry:
        server.refuse("mcp_config.args", f"an array that begins with `{_HERE}/{entry}`", value=list(args))
    return tuple(args[1:])


def _imports(server: Fields, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    found = [each for each in re.split(r"\$\{pathSeparator\}|\$\{:\}|:|;", text) if each]
    return tuple(_inner(server, "mcp_config.env.PYTHONPATH", each) for each in found)


def _template(server: Fields, text: str, inputs: Sequence[Input]) -> str:
    """Return a text with `${tree}` for the bundle's folder. Raises: Invalid for what cannot be filled in."""
    if has_hidden(text):
        raise Invalid(f"{server.named('mcp_config')} has hidden characters: {quote(text)}")
    plain = text.replace(_HERE, _TREE).replace("${/}", "/")
    keys = {each.key for each in inputs}
    for found in _PLACE.findall(plain):
        if found != "tree" and not (found.startswith("user_config.") and found[12:] in keys):
            raise Invalid(f"{server.named('mcp_config')} says {quote(text)}, which PML does not fill in")
    return plain


def _inputs(fields: Fields) -> tuple[tuple[Input, ...], frozenset[str]]:
    asked = fields.section("user_config")
    found: list[Input] = []
    several: set[str] = set()
    for key in () if asked is None else asked.value:
        inner = asked.section(key) if asked is not None else None
        if inner is None:
            continue
        default = inner.get("default")
        text = default if isinstance(default, str) else None
        if isinstance(default, bool | int | float):
            text = str(default).lower()
        if inner.boolean("multiple"):
            several.add(key)
        found.append(
            Input(
                key=key,
                description=visible(
                    inner.text("description", most=_CHARS) or inner.text("title", most=_CHARS) or ""
                ),
                is_required=inner.boolean("required") or False,
                is_secret=inner.boolean("sensitive") or False,
                default=None if text is None or "${" in text or has_hidden(text) else text or None,
                format=inner.text("type", most=20) or "string",
            )
        )
    return tuple(found), frozenset(several)


class _Given:
    """A person's answers, filled into the templates of one bundle."""

    def __init__(
        self, manifest: BundleManifest, answers: Mapping[str, str], secrets: Collection[str]
    ) -> None:
        self._manifest = manifest
        self._inputs = {each.key: each for each in manifest.inputs}
        self._answers = answers
        self._secrets = secrets
        self._missing: dict[str, Input] = {}

    def check(self) -> None:
        """Raise Missing if a required input has no answer."""
        if self._missing:
            raise Missing(self._manifest.name, tuple(self._missing.values()))

    def has_secret(self, text: str) -> bool:
        return any(self._inputs[key].is_secret for key in _ASKED.findall(text))

    def wants(self, text: str) -> bool:
        """Tell whether a variable with a secret must be set."""
        asked = [self._inputs[key] for key in _ASKED.findall(text)]
        return any(each.is_required or each.key in self._secrets for each in asked)

    def words(self, text: str) -> list[str]:
        """Return the words of one argument: none without an answer, several for several values."""
        if self.has_secret(text):
            raise Invalid(
                f"{quote(self._manifest.name)} wants a secret as an argument, which every program "
                "on this machine can read"
            )
        alone = _ASKED.fullmatch(text)
        if alone is not None and alone[1] in self._manifest.several:
            value = self._value(alone[1])
            return [] if value is None else [line for line in value.split("\n") if line]
        filled = self.text(text)
        return [] if filled is None else [filled]

    def text(self, text: str) -> str | None:
        """Return the text, None if an input in it has no answer."""
        values = {key: self._value(key) for key in _ASKED.findall(text)}
        if None in values.values():
            return None
        return _ASKED.sub(lambda found: values[found[1]] or "", text)  # one pass: answers are no templates

    def reach(self, permissions: Permissions) -> Permissions:
        """Return `permissions` and the files and folders that were named."""
        read, write = list(permissions.read), list(permissions.write)
        for wanted in self._manifest.inputs:
            if wanted.format in ("directory", "file") and (value := self._value(wanted.key)) is not None:
                (write if wanted.format == "directory" else read).extend(filter(None, value.split("\n")))
        return replace(permissions, read=tuple(dict.fromkeys(read)), write=tuple(dict.fromkeys(write)))

    def _value(self, key: str) -> str | None:
        wanted = self._inputs[key]
        answer = self._answers.get(key, wanted.default)
        if answer is None:
            if wanted.is_required and not wanted.is_secret:
                self._missing[key] = wanted
            return None
        for line in answer.split("\n") if key in self._manifest.several else [answer]:
            check_answer(wanted, line)
            if "${" in line or has_hidden(line):
                raise Invalid(f"{quote(key)} must be plain text, not {quote(line)}")
        return answer


NO_WORKSPACE: Final = Permissions(net=True, workspace=Access.NONE)
