"""A `server.json` of the official MCP registry: typed, and checked field by field.

Only what PML can prove or reach is offered: packages of npm and PyPI, `.mcpb` files by their hash, remote
servers. Every other package is kept with the sentence that says why not. What a person must give is an input;
`offer.py` makes servers of it. Where the file comes from is not known here.
"""

import hashlib
import re
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from pml.core.errors import Invalid
from pml.core.names import Fqdn
from pml.core.packages.capability import Status
from pml.core.packages.fields import Fields
from pml.core.packages.integrity import Integrity, parse_integrity
from pml.core.packages.package import Ecosystem, is_name, is_version, normal_name
from pml.core.text import has_hidden, quote, visible
from pml.core.values import JsonObject

ORG: Final = "mcp"  # the FQDN of `io.github.user/server` is `mcp.io_github_user.server`

_NAME: Final = re.compile(r"[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+/[a-zA-Z0-9._-]+")
VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_MOST: Final = 50
_CHARS: Final = 4_096
_WHY_NOT: Final = {
    "oci": "a container image: PML starts no containers, and an image has no hash of what runs in it here",
    "nuget": "a .NET package: PML proves packages of npm and PyPI only; `dnx` runs what it downloads",
    "cargo": "a Rust crate: it would be compiled here, and a build runs code that nobody proved",
}
# The public registries by a digest of their hosts: no host of a package registry is written down in PML.
_PUBLIC: Final = {Ecosystem.NPM: "0dc11026ac75c015", Ecosystem.PYPI: "a4aa2ac280bb8d1a"}


_TextT = TypeVar("_TextT", str, str | None)


class Input(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a person may or must say. A secret one is never asked for as text: it is a variable."""

    key: str
    description: str | None = None
    is_required: bool = False
    is_secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    format: str = "string"


class Slot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A variable, header or argument: `value` is fixed but for its `{inputs}`; None: the one input is it.

    `name` is empty for a positional argument.
    """

    name: str
    value: str | None = None
    inputs: tuple[Input, ...] = ()

    @property
    def is_secret(self) -> bool:
        return any(each.is_secret for each in self.inputs)

    @property
    def is_required(self) -> bool:
        return any(each.is_required for each in self.inputs)


class ListedPackage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package that can be installed; of a `.mcpb` file, `identifier` is the URL."""

    ecosystem: Ecosystem
    identifier: str
    version: str
    sha256: Integrity | None = None
    base_url: str | None = None
    arguments: tuple[Slot, ...] = ()
    variables: tuple[Slot, ...] = ()


class ListedRemote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One address; `url` may have `{inputs}`."""

    kind: str
    url: Slot
    headers: tuple[Slot, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A package or remote that PML does not take, and why; both visible."""

    what: str
    why: str


class ListedServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    version: str
    description: str = ""
    title: str | None = None
    repository: str | None = None
    status: Status = Status.ACTIVE
    status_message: str | None = None
    packages: tuple[ListedPackage, ...] = ()
    remotes: tuple[ListedRemote, ...] = ()
    refused: tuple[Refused, ...] = ()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the address of the registry that lists it."""

    server: ListedServer
    registry: str


def is_listed_name(text: str) -> bool:
    """Tell whether `text` can be a name in the official registry, such as `io.github.user/server`."""
    return len(text) <= 200 and bool(_NAME.fullmatch(text))


def listed_fqdn(name: str) -> Fqdn:
    """Return the FQDN under which PML knows a server of the official registry. Raises: Invalid."""
    owner, _, server = name.partition("/")
    return Fqdn(
        org=ORG,
        project=owner.replace(".", "_"),
        namespace=re.sub(r"[^A-Za-z0-9_-]", "-", server),
        action=None,
    )


def listed_name(project: str, namespace: str) -> str | None:
    """Return the name that the registry has for `mcp.{project}.{namespace}`; None if there can be none."""
    name = f"{project.replace('_', '.')}/{namespace}"
    return name if is_listed_name(name) else None


def parse_listed(value: JsonObject, *, what: str) -> ListedServer:
    """Return the server that an answer of the registry describes: `{"server": …, "_meta": …}`, or it alone.

    Raises: Invalid, naming the field, for what makes the whole entry unsound.
    """
    outer = Fields(what=what, value=value)
    fields = outer.section("server") or outer
    name = fields.text("name", most=200)
    if name is None or not is_listed_name(name):
        fields.refuse("name", "like `io.github.user/server`")
    version = fields.text("version", most=255)
    if version is None:
        fields.missing("version", "one exact version")
    status, message = _status(outer)
    repository = fields.section("repository")
    packages, remotes, refused = _offers(fields)
    return ListedServer(
        name=name,
        version=visible(version),
        description=visible(fields.text("description", most=_CHARS) or ""),
        title=_shown(fields, "title"),
        repository=None if repository is None else _shown(repository, "url"),
        status=status,
        status_message=message,
        packages=packages,
        remotes=remotes,
        refused=refused,
    )


def is_public(base_url: str, ecosystem: Ecosystem) -> bool:
    """Tell whether `base_url` is the one public registry of the ecosystem."""
    host = urlsplit(base_url).hostname or ""
    return hashlib.sha256(host.encode()).hexdigest()[:16] == _PUBLIC.get(ecosystem)


def _status(outer: Fields) -> tuple[Status, str | None]:
    meta = outer.section("_meta")
    for inner in () if meta is None else (meta.section(key) for key in meta.value):
        if inner is not None and inner.get("status") is not None:
            return inner.choice("status", Status) or Status.ACTIVE, _shown(inner, "statusMessage")
    return Status.ACTIVE, None


def _offers(
    fields: Fields,
) -> tuple[tuple[ListedPackage, ...], tuple[ListedRemote, ...], tuple[Refused, ...]]:
    packages: list[ListedPackage] = []
    remotes: list[ListedRemote] = []
    refused: list[Refused] = []
    for inner in fields.sections("packages", most=_MOST):
        title = visible(f"{inner.get('registryType')} {inner.get('identifier')}")[:200]
        try:
            packages.append(_package(inner))
        except Invalid as exc:
            refused.append(Refused(what=title, why=exc.message))
    for inner in fields.sections("remotes", most=_MOST):
        try:
            remotes.append(_remote(inner))
        except Invalid as exc:
            refused.append(Refused(what=visible(f"remote {inner.get('url')}")[:200], why=exc.message))
    return tuple(packages), tuple(remotes), tuple(refused)


def _package(fields: Fields) -> ListedPackage:
    kind = fields.text("registryType", most=50)
    if kind in _WHY_NOT:
        raise Invalid(f"it is {_WHY_NOT[kind]}")
    if kind not in list(Ecosystem):
        fields.refuse("registryType", "`npm`, `pypi` or `mcpb`")
    ecosystem = Ecosystem(kind)
    identifier = fields.text("identifier", most=_CHARS)
    if identifier is None:
        fields.missing("identifier", "the name of a package, or the URL of a `.mcpb` file")
    transport = fields.section("transport")
    if transport is not None and transport.get("type") not in (None, "stdio"):
        transport.refuse("type", "`stdio`: PML does not start servers that then listen on a port")
    _refuse_runtime(fields)
    return ListedPackage(
        ecosystem=ecosystem,
        identifier=_identifier(fields, identifier, ecosystem),
        version=_version(fields, ecosystem),
        sha256=_sha256(fields, ecosystem),
        base_url=_base_url(fields, ecosystem),
        arguments=tuple(
            _argument(inner, number)
            for number, inner in enumerate(fields.sections("packageArguments", most=_MOST), 1)
        ),
        variables=tuple(_named(each) for each in fields.sections("environmentVariables", most=_MOST)),
    )


def _identifier(fields: Fields, text: str, ecosystem: Ecosystem) -> str:
    if ecosystem is Ecosystem.MCPB:
        if urlsplit(text).scheme != "https" or has_hidden(text):
            fields.refuse("identifier", "the https URL of a `.mcpb` file")
        return text
    if not is_name(text, ecosystem):
        fields.refuse("identifier", f"a name of a package of {ecosystem}")
    return normal_name(text, ecosystem)


def _version(fields: Fields, ecosystem: Ecosystem) -> str:
    """Return the version. Raises: Invalid for a range or `latest`: what is proven is one version."""
    version = fields.text("version", most=255)
    if version is None and ecosystem is Ecosystem.MCPB:
        return "0.0.0"  # its manifest has it
    if version is None or not is_version(version, ecosystem):
        fields.refuse("version", "one exact version")
    return version


def _sha256(fields: Fields, ecosystem: Ecosystem) -> Integrity | None:
    text = fields.text("fileSha256", most=64)
    if text is None:
        if ecosystem is Ecosystem.MCPB:
            fields.missing("fileSha256", "the hash of the `.mcpb` file, without which nothing proves it")
        return None
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        fields.refuse("fileSha256", "64 hex digits")
    return parse_integrity(f"sha256-{text}", what=fields.named("fileSha256"))


def _base_url(fields: Fields, ecosystem: Ecosystem) -> str | None:
    """Return where the entry says that the package lies, None for the public registry."""
    url = fields.text("registryBaseUrl", most=_CHARS)
    is_named = url is not None and ecosystem is not Ecosystem.MCPB and not is_public(url, ecosystem)
    return url if is_named else None


def _refuse_runtime(fields: Fields) -> None:
    """Refuse what would steer the runtime; PML has its own, so `npx` without a question means nothing."""
    for index, inner in enumerate(fields.sections("runtimeArguments", most=_MOST)):
        words = [str(inner.get(key)) for key in ("name", "value") if inner.get(key) is not None]
        if words not in (["-y"], ["--yes"]):
            raise Invalid(
                f"{fields.named(f'runtimeArguments[{index}]')} is {quote(' '.join(words))}: it would steer "
                "the runtime that starts the server, which PML chooses; only `-y` is passed over"
            )


def _argument(fields: Fields, number: int) -> Slot:
    kind = fields.get("type")
    if kind not in ("positional", "named"):
        fields.refuse("type", "`positional` or `named`")
    if kind == "positional":
        return _slot(fields, "", key=fields.text("valueHint", most=200) or f"argument {number}")
    name = fields.text("name", most=200)
    if name is None or has_hidden(name):
        fields.refuse("name", "the name of an option, such as `--port`")
    is_flag = all(
        fields.get(key) is None for key in ("value", "default", "choices", "valueHint", "variables")
    )
    if is_flag and fields.get("isRequired") and fields.get("format") == "boolean":
        return Slot(name=name, value="")
    return _slot(fields, name, key=name)


def _named(fields: Fields) -> Slot:
    name = fields.text("name", most=200)
    if name is None or has_hidden(name):
        fields.refuse("name", "the name of a variable or header")
    return _slot(fields, name, key=name)


def _slot(fields: Fields, name: str, *, key: str) -> Slot:
    value = fields.text("value", most=_CHARS)
    if value is None:
        return Slot(name=name, inputs=(_input(fields, key),))
    _plain(fields, "value", value)
    return Slot(name=name, value=value, inputs=_inputs(fields, value, prefix=f"{key}."))


def _inputs(fields: Fields, template: str, *, prefix: str) -> tuple[Input, ...]:
    """Return the inputs of a template; one that is not described is required."""
    described = fields.section("variables")
    found: dict[str, Input] = {}
    for name in VARIABLE.findall(template):
        inner = None if described is None else described.section(name)
        plain = Input(key=f"{prefix}{name}", is_required=True)
        found[name] = plain if inner is None else _input(inner, f"{prefix}{name}")
    return tuple(found.values())


def _input(fields: Fields, key: str) -> Input:
    default = fields.text("default", most=_CHARS) if fields.get("default") else None
    return Input(
        key=visible(key),
        description=_shown(fields, "description"),
        is_required=fields.boolean("isRequired") or False,
        is_secret=fields.boolean("isSecret") or False,
        default=_plain(fields, "default", default),
        choices=tuple(
            _plain(fields, "choices", each) for each in fields.texts("choices", most=_MOST, each=_CHARS)
        ),
        format=fields.text("format", most=20) or "string",
    )


def _remote(fields: Fields) -> ListedRemote:
    kind = fields.get("type")
    if kind not in ("streamable-http", "sse"):
        fields.refuse("type", "`streamable-http` or `sse`")
    url = fields.text("url", most=_CHARS)
    if url is None or has_hidden(url) or not url.startswith("https://"):
        fields.refuse("url", "an https URL")
    host = re.split(r"[/?#]", url.removeprefix("https://"))[0]
    if "{" in ".".join(host.split(".")[-2:]):
        raise Invalid(f"{fields.named('url')} is {quote(url)}: nobody knows its host before it is filled in")
    return ListedRemote(
        kind=str(kind),
        url=Slot(name="url", value=url, inputs=_inputs(fields, url, prefix="")),
        headers=tuple(_named(each) for each in fields.sections("headers", most=_MOST)),
    )


def _plain(fields: Fields, key: str, text: _TextT) -> _TextT:
    if text is not None and has_hidden(text):
        raise Invalid(f"{fields.named(key)} has hidden characters: {quote(text)}")
    return text


def _shown(fields: Fields, key: str) -> str | None:
    text = fields.text(key, most=_CHARS) if fields.get(key) not in (None, "") else None
    return None if text is None else visible(text)
