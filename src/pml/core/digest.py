"""Digests bind a decision to exactly what was shown: tool, arguments, tool definition, artefact."""

import hashlib

from pml.core.values import Json, JsonObject, canonical


def digest(value: Json) -> str:
    """Return `sha256:<hex>` of the canonical spelling of `value`."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def digest_call(
    tool: str, arguments: JsonObject, *, definition: str | None = None, artefact: str | None = None
) -> str:
    """Return the digest of one call: what an approval binds and a claim must name."""
    return digest({"tool": tool, "arguments": arguments, "definition": definition, "artefact": artefact})
