"""Forms of a registry entry under its name: metadata, TypeScript, Python.

A name is an FQDN or a namespace, made of word characters only: it is safe in a path and in a URL. Whether the
registry is a folder or a server is not known here.
"""

from contextlib import suppress
from enum import StrEnum
from typing import Final, NewType

from pml.core.errors import Invalid
from pml.core.names import FALLBACK_EXPORT, ToolName, fqdn_of, parse_fqdn
from pml.core.packages.capability import CapabilityMetadata, CapabilityType, parse_metadata
from pml.core.text import quote

EntryName = NewType("EntryName", str)


class Form(StrEnum):
    """One form of an entry; the value is its media type."""

    METADATA = "application/json"
    TYPESCRIPT = "application/typescript"
    PYTHON = "text/x-python"


SUFFIX: Final = {Form.METADATA: ".json", Form.TYPESCRIPT: ".ts", Form.PYTHON: ".py"}
MAX_BYTES: Final = {
    Form.METADATA: 1024 * 1024,  # a closure of a thousand packages has a third of it
    Form.TYPESCRIPT: 4 * 1024 * 1024,
    Form.PYTHON: 4 * 1024 * 1024,
}
_MAX_PARSED: Final = 32  # kept in memory; a workspace uses a few
_CODE: Final = {CapabilityType.DENO: Form.TYPESCRIPT, CapabilityType.PYTHON: Form.PYTHON}


def entry_name(text: str) -> EntryName:
    """Return the FQDN or namespace that `text` spells. Raises: Invalid."""
    if "." in text:
        return EntryName(str(parse_fqdn(text)))
    return EntryName(str(ToolName(namespace=text, action=FALLBACK_EXPORT).namespace))


def is_entry(name: str) -> bool:
    """Tell whether `name` is one of PML's own entries, not of another kind of registry's."""
    try:
        return entry_name(name) == name
    except Invalid:
        return False


def names_of(tool: ToolName, prefix: str | None) -> list[EntryName]:
    """Return the names under which `tool` may be found, the first first; none for a client's own tool."""
    if tool.namespace is None:
        return []
    names = [EntryName(tool.namespace)]
    if prefix is not None and tool.action == FALLBACK_EXPORT:
        names.insert(0, entry_name(f"{prefix}.{tool.namespace}"))  # `org.project.name` is called `name:run`
    if prefix is not None:
        with suppress(Invalid):  # an action such as `a/b` fits no FQDN; its server may still be found
            names.insert(0, EntryName(str(fqdn_of(tool, prefix))))
    return names


def code_form(metadata: CapabilityMetadata) -> Form | None:
    """Return the form of the capability's code; None for one that has no code."""
    return _CODE.get(metadata.type)


class MetadataReader:
    """Reads bodies as metadata; one that it has read lately is not parsed again."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, CapabilityMetadata] = {}

    def read(self, body: bytes, name: EntryName, *, source: str) -> CapabilityMetadata:
        """Return the metadata that `source` gave for `name`. Raises: Invalid, also if it is about another."""
        what = f"the metadata of {quote(name)} from {quote(source)}"
        metadata = self._parsed.get(body)
        if metadata is None:
            metadata = parse_metadata(body, what=what)
            if len(self._parsed) >= _MAX_PARSED:
                self._parsed.clear()
            self._parsed[body] = metadata
        fqdn = metadata.fqdn
        if name not in ({str(fqdn)} if "." in name else {fqdn.namespace, fqdn.action}):
            raise Invalid(
                f"{what} is about {quote(str(fqdn))}, but {quote(name)} was asked for",
                hint="it is not used; tell the operator of the registry",
            )
        return metadata
