"""The four names of a tool, and the ways between them.

    tool   github:create_issue               rules and people; a client's own tool is bare: Bash
    FQDN   acme.tools.github.create_issue    the registry; also acme.tools.summarize
    code   mcp.github.create_issue           capabilities; mcp["a-b"]["c/d"] where a dot will not do
    wire   github__create_issue              what MCP clients see; mapped back by table, never by splitting

FQDN → tool → code never fails. A name of one of these types is valid; it holds nothing hidden and
no `*` or `?`, so it can never be read as a pattern. Who may use which tool is not known here.
"""

import hashlib
import json
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pml.core.errors import Invalid
from pml.core.text import has_hidden, quote

MAX_ACTION: Final = 200
MAX_WIRE: Final = 64
FALLBACK_EXPORT: Final = "run"  # the export of a capability that is named without an action

_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD_RULE: Final = "1 to 64 of `A-Z a-z 0-9 _ -`"
_CODE_MEMBER: Final = r'(?:\.([A-Za-z_]\w*)|\[("(?:[^"\\]|\\.)*")\])'
_CODE: Final = re.compile("mcp" + _CODE_MEMBER + _CODE_MEMBER, re.ASCII)
_ATTRIBUTE: Final = re.compile(r"(?!__)[A-Za-z_]\w*", re.ASCII)
# Python has no attribute of these names; an object with a `then` is awaited by JavaScript as a promise.
_NO_ATTRIBUTE: Final = frozenset({*keyword.kwlist, "then"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolName:
    """`namespace:action`, or a client's own tool, which has no namespace. Raises: Invalid."""

    namespace: str | None
    action: str

    def __post_init__(self) -> None:
        if self.namespace is None:
            if ":" in self.action:
                raise Invalid(f"tool {quote(self.action)} has a `:` but no namespace")
        elif not _WORD.fullmatch(self.namespace):
            raise _invalid_tool(str(self), f"the namespace must be {_WORD_RULE}")
        if not 1 <= len(self.action) <= MAX_ACTION:
            raise _invalid_tool(str(self), f"the action must have 1 to {MAX_ACTION} characters")
        if has_hidden(self.action) or " " in self.action:
            raise _invalid_tool(str(self), "the action must not have blanks or hidden characters")
        if "*" in self.action or "?" in self.action:
            raise _invalid_tool(str(self), "`*` and `?` belong to patterns, not to names")

    def __str__(self) -> str:
        return self.action if self.namespace is None else f"{self.namespace}:{self.action}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fqdn:
    """`org.project.namespace.action`, or `org.project.name` with no action. Raises: Invalid."""

    org: str
    project: str
    namespace: str
    action: str | None

    def __post_init__(self) -> None:
        for part in self._parts():
            if not _WORD.fullmatch(part):
                raise Invalid(f"FQDN {quote(str(self))}: {quote(part)} must be {_WORD_RULE}")

    def __str__(self) -> str:
        return ".".join(self._parts())

    def _parts(self) -> tuple[str, ...]:
        parts = (self.org, self.project, self.namespace)
        return parts if self.action is None else (*parts, self.action)


def parse_tool(text: str) -> ToolName:
    """Return the tool that `text` names: `namespace:action`, or a client's own tool. Raises: Invalid."""
    before, colon, after = text.partition(":")
    return ToolName(namespace=before, action=after) if colon else ToolName(namespace=None, action=text)


def parse_fqdn(text: str) -> Fqdn:
    """Return the FQDN that `text` spells. Raises: Invalid."""
    match text.split("."):
        case [org, project, namespace]:
            return Fqdn(org=org, project=project, namespace=namespace, action=None)
        case [org, project, namespace, action]:
            return Fqdn(org=org, project=project, namespace=namespace, action=action)
        case _:
            raise Invalid(
                f"FQDN {quote(text)}: expected `org.project.namespace.action` or `org.project.name`"
            )


def parse_code(text: str) -> ToolName:
    """Return the tool that code calls as `text`, such as `mcp.github.create_issue`. Raises: Invalid."""
    if not (found := _CODE.fullmatch(text)):
        raise Invalid(
            f'code name {quote(text)}: expected `mcp.namespace.action` or `mcp["namespace"]["action"]`'
        )
    namespace, action = found[1] or _unquote(found[2]), found[3] or _unquote(found[4])
    return ToolName(namespace=namespace, action=action)


def tool_of(fqdn: Fqdn) -> ToolName:
    """Return the tool that `fqdn` names. Total; `org.project.name` is `name:run`."""
    return ToolName(namespace=fqdn.namespace, action=fqdn.action or FALLBACK_EXPORT)


def code_of(tool: ToolName) -> str:
    """Return how code calls `tool`. Total, but for a client's own tool. Raises: Invalid for that."""
    return "mcp" + _member(_namespace_of(tool)) + _member(tool.action)


def fqdn_of(tool: ToolName, prefix: str) -> Fqdn:
    """Return the FQDN of `tool` beneath `prefix` (`org.project`). Raises: Invalid if either does not fit."""
    match prefix.split("."):
        case [org, project]:
            return Fqdn(org=org, project=project, namespace=_namespace_of(tool), action=tool.action)
        case _:
            raise Invalid(f"registry prefix {quote(prefix)}: expected `org.project`")


def wire_of(tool: ToolName) -> str:
    """Return the wire name of `tool`: always `[a-zA-Z0-9_-]{1,64}`, the same in every process.

    A name that had to be changed or cut ends in a hash of the whole name, so that it stays its own.
    Raises: Invalid for a client's own tool.
    """
    plain = f"{_namespace_of(tool)}__{tool.action}"
    if _WORD.fullmatch(plain):
        return plain
    suffix = "_" + hashlib.sha256(str(tool).encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]", "_", plain)[: MAX_WIRE - len(suffix)] + suffix


def colon_of(wire: str, servers: Iterable[str]) -> str | None:
    """Return the tool that people may mean when they write `wire` in a rule, None if no server begins it.

    For messages only: which tool a client means is told by the table.
    """
    found = max((server for server in servers if wire.startswith(f"{server}__")), key=len, default=None)
    action = "" if found is None else wire[len(found) + 2 :]
    # What goes on with `__` is a client's own name for a tool of a server of its own.
    return None if found is None or ":" in wire or "__" in action else f"{found}:{action}"


def _namespace_of(tool: ToolName) -> str:
    if tool.namespace is None:
        raise Invalid(f"tool {quote(str(tool))} is a client's own: expected `namespace:action`")
    return tool.namespace


def _member(name: str) -> str:
    if _ATTRIBUTE.fullmatch(name) and name not in _NO_ATTRIBUTE:
        return f".{name}"
    # Characters stay as they are: TypeScript and Python disagree on how to escape those beyond U+FFFF.
    return f"[{json.dumps(name, ensure_ascii=False)}]"


def _unquote(literal: str) -> str:
    try:
        return json.loads(literal)
    except ValueError as exc:
        raise Invalid(f"code name has {quote(literal)}, which is not a string") from exc


def _invalid_tool(text: str, problem: str) -> Invalid:
    return Invalid(f"tool {quote(text)}: {problem}")
