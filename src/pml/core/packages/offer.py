"""Servers made of what a registry lists and a person answered: a dependency to install, or an entry by URL.

The answers are by the keys of the inputs. A secret is never an answer: its variable is named in
`env_required` or stands as `${NAME}` in a header, and `pml secrets` has its value. Nothing is fetched here.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pml.core.errors import Invalid
from pml.core.names import tool_of
from pml.core.packages.capability import (
    CapabilityMetadata,
    CapabilityType,
    McpDependency,
    Status,
    parse_dependency,
)
from pml.core.packages.package import PIN, Ecosystem
from pml.core.packages.permissions import Access, Permissions, permissions_json
from pml.core.packages.server_json import (
    VARIABLE,
    Input,
    ListedPackage,
    ListedRemote,
    ListedServer,
    Slot,
    listed_fqdn,
)
from pml.core.servers.expansion import Expander
from pml.core.text import quote
from pml.core.values import Json, JsonObject

# A list says nothing of what a server reaches. Most of them call a service; hardly one needs the workspace.
USUAL_REACH: Final = Permissions(net=True, workspace=Access.NONE)

_RUNNERS: Final = {Ecosystem.NPM: "npx -y", Ecosystem.PYPI: "uvx"}
_TRUE: Final = "true"
_URL_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*|-")  # never another host or path
_BOOLEANS: Final = frozenset({_TRUE, "false"})
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_PLAIN_NAMES: Final = frozenset({"mcp", "server", "mcp-server", "mcp_server"})


class Missing(Invalid):
    """Required inputs without an answer; `inputs` are they."""

    def __init__(self, server: str, inputs: Sequence[Input]) -> None:
        names = ", ".join(quote(each.key) for each in inputs)
        super().__init__(f"{quote(server)} needs {names}", hint="`pml add` asks for it")
        self.inputs = tuple(inputs)


def inputs_of(offered: ListedPackage | ListedRemote) -> tuple[Input, ...]:
    """Return all that a person may say, the required first."""
    slots = _slots(offered)
    found = {each.key: each for slot in slots for each in slot.inputs}
    return tuple(sorted(found.values(), key=lambda each: not each.is_required))


def suggested_name(server: ListedServer) -> str:
    """Return a name for the server in rules and configuration: its last word that tells anything."""
    owner, _, name = server.name.partition("/")
    word = owner.rpartition(".")[2] if name.lower() in _PLAIN_NAMES else name
    return re.sub(r"[^A-Za-z0-9_-]", "-", word)[:64]


def dependency_of(
    server: ListedServer,
    package: ListedPackage,
    *,
    name: str,
    answers: Mapping[str, str] | None = None,
    secrets: Collection[str] = (),
    permissions: Permissions = USUAL_REACH,
    own_registries: Collection[str] = (),
) -> McpDependency:
    """Return how a package of npm or PyPI is installed and started under `name`.

    `secrets` are optional secret variables that a person will set; `own_registries` the URLs of package
    registries that the user's own settings name.
    Raises: Missing; Invalid for what would be unsafe or cannot be filled in.
    """
    if package.ecosystem not in _RUNNERS:
        raise Invalid(f"{quote(server.name)} is an MCP bundle: its own manifest says how it is started")
    if package.base_url is not None and package.base_url.rstrip("/") not in own_registries:
        raise Invalid(
            f"{quote(server.name)} wants {quote(package.identifier)} from {quote(package.base_url)}, which "
            "is not a registry of yours: the same name in yours may be another package",
            hint="name that registry in your own npm or pip settings first, if you trust it",
        )
    given = _Answers(server.name, answers or {}, secrets)
    args = [word for slot in package.arguments for word in given.argument(slot)]
    env = {slot.name: text for slot in package.variables if (text := given.variable(slot)) is not None}
    given.check()
    install = f"{_RUNNERS[package.ecosystem]} {package.identifier}{PIN[package.ecosystem]}{package.version}"
    shape: dict[str, Json] = {
        "name": name,
        "type": "stdio",
        "install": install,
        "version": package.version,
        "args": args,
        "env": env,
        "env_required": list(given.required),
        "permissions": permissions_json(permissions) or {},
        "mcp_name": server.name,
        "status": None if server.status is Status.ACTIVE else server.status.value,
    }
    return parse_dependency(shape, what=f"what the registry says of {quote(server.name)}")


def metadata_of(server: ListedServer, dependency: McpDependency) -> CapabilityMetadata:
    """Return the entry as PML's own registries have it. Raises: Invalid for a name that is too long."""
    return CapabilityMetadata(
        fqdn=listed_fqdn(server.name),
        type=CapabilityType.SERVER,
        description=server.description or None,
        mcp_deps=(dependency,),
    )


def usual_metadata(server: ListedServer, *, own_registries: Collection[str] = ()) -> CapabilityMetadata:
    """Return the entry with the first package that can be started without an answer.

    Raises: Missing, Invalid: why none can be; with the reasons of what is refused.
    """
    name = tool_of(listed_fqdn(server.name)).namespace or ""
    failure: Invalid | None = None
    for package in server.packages:
        try:
            dependency = dependency_of(server, package, name=name, own_registries=own_registries)
            return metadata_of(server, dependency)
        except Invalid as exc:
            failure = failure or exc
    raise failure or Invalid(_nothing(server), hint=f"`pml add {server.name}` brings in what has an address")


def entry_of(
    server: ListedServer, remote: ListedRemote, *, answers: Mapping[str, str] | None = None
) -> tuple[JsonObject, tuple[str, ...]]:
    """Return the entry of `mcpServers` for a remote, and the secrets that its `${NAME}`s mean.

    Raises: Missing; Invalid for what cannot be filled in.
    """
    given = _Answers(server.name, answers or {}, ())
    if remote.url.is_secret:
        raise Invalid(f"{quote(server.name)} wants a secret in its URL, where logs and proxies would show it")
    for wanted in remote.url.inputs:
        if not _URL_WORD.fullmatch(text := given.answer(wanted) or "-"):
            raise Invalid(f"{quote(wanted.key)} is a part of a URL, and {quote(text)} has other characters")
    url = given.text(remote.url)
    headers = {slot.name: text for slot in remote.headers if (text := given.header(slot)) is not None}
    given.check()
    kind = "sse" if remote.kind == "sse" else "http"
    _refuse_foreign_variables(server.name, (url or "", *headers.values()), given)
    entry: dict[str, Json] = {"type": kind, "url": url}
    return ({**entry, "headers": headers} if headers else entry), tuple(given.required)


def _refuse_foreign_variables(server: str, texts: Iterable[str], given: "_Answers") -> None:
    """Raise Invalid where the list, not the person, names a variable of the user's to be sent."""
    named = Expander({})
    for text in texts:
        named(text)
    own = Expander({})
    for text in given.texts:
        own(text)
    foreign = next((name for name in named.names if name not in {*given.required, *own.names}), None)
    if foreign is not None:
        raise Invalid(
            f"{quote(server)} would be sent a variable of yours, {quote(foreign)}, which its registry names",
            hint="tell the operator of the registry; `pml add URL` adds an address that you know",
        )


def _slots(offered: ListedPackage | ListedRemote) -> Iterable[Slot]:
    if isinstance(offered, ListedRemote):
        return (offered.url, *offered.headers)
    return (*offered.variables, *offered.arguments)


def _nothing(server: ListedServer) -> str:
    why = "; ".join(f"{each.what}: {each.why}" for each in server.refused)
    return f"{quote(server.name)} has no package that PML can install" + (f" ({why})" if why else "")


class _Answers:
    """What fills one server's slots; `required` are the variables that `pml secrets` must have."""

    def __init__(self, server: str, answers: Mapping[str, str], secrets: Collection[str]) -> None:
        self._server = server
        self._answers = answers
        self._secrets = secrets
        self._missing: list[Input] = []
        self.required: list[str] = []

    @property
    def texts(self) -> Iterable[str]:
        """What the person gave."""
        return self._answers.values()

    def check(self) -> None:
        """Raise Missing if a required input has no answer."""
        if self._missing:
            raise Missing(self._server, self._missing)

    def argument(self, slot: Slot) -> Sequence[str]:
        """Return the words of an argument. Raises: Invalid for a secret one that is required."""
        if slot.is_secret:
            if slot.is_required:
                raise Invalid(
                    f"{quote(self._server)} wants the secret {quote(slot.inputs[0].key)} as an argument, "
                    "which every program on this machine can read"
                )
            return ()
        text = self.text(slot)
        if text is None:
            return ()
        is_flag = bool(slot.name) and all(each.format == "boolean" for each in slot.inputs) and slot.inputs
        if is_flag:
            return (slot.name,) if text == _TRUE else ()
        return tuple(word for word in (slot.name, text) if word)

    def variable(self, slot: Slot) -> str | None:
        """Return the fixed value of an environment variable, None where it is a secret or not set."""
        if not slot.is_secret:
            return self.text(slot)
        if slot.is_required or slot.name in self._secrets:
            self.required.append(slot.name)
        return None

    def header(self, slot: Slot) -> str | None:
        """Return the value of a header, with `${NAME}` for a secret."""
        if not slot.is_secret:
            return self.text(slot)
        if not slot.is_required:
            return None
        name = _variable_of(self._server, slot.inputs[0].key.rpartition(".")[2])
        self.required.append(name)
        if slot.value is None:
            return f"${{{name}}}"
        return slot.value.replace(f"{{{slot.inputs[0].key.rpartition('.')[2]}}}", f"${{{name}}}")

    def text(self, slot: Slot) -> str | None:
        """Return the text of a slot, None if nobody gave it and nobody must."""
        if slot.value is None:
            [wanted] = slot.inputs
            return self._one(wanted)
        found = {each.key.rpartition(".")[2]: self._one(each) for each in slot.inputs}
        if any(found[each.key.rpartition(".")[2]] is None for each in slot.inputs if not each.is_required):
            return None
        # in one pass: an answer is never read as a template
        return VARIABLE.sub(lambda match: found.get(match[1]) or "", slot.value)

    def answer(self, wanted: Input) -> str | None:
        return self._answers.get(wanted.key, wanted.default)

    def _one(self, wanted: Input) -> str | None:
        answer = self.answer(wanted)
        if answer is None:
            if wanted.is_required:
                self._missing.append(wanted)
            return None
        check_answer(wanted, answer)
        return answer


def check_answer(wanted: Input, answer: str) -> None:
    """Raise Invalid if `answer` is not what the input takes."""
    is_sound = (
        (not wanted.choices or answer in wanted.choices)
        and (wanted.format != "boolean" or answer in _BOOLEANS)
        and (wanted.format != "number" or bool(_NUMBER.fullmatch(answer)))
    )
    if not is_sound:
        expected = ", ".join(map(quote, wanted.choices)) or f"a {wanted.format}"
        raise Invalid(f"{quote(wanted.key)} must be {expected}, not {quote(answer)}")


def _variable_of(server: str, key: str) -> str:
    """Return a name for a secret that no other server's secret has: with all of the server's name."""
    return re.sub(r"[^A-Z0-9]+", "_", f"{server}_{key}".upper()).strip("_")
