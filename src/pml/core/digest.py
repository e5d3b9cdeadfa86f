"""Digests bind a decision to exactly what was shown: tool, arguments, folder, tool definition, artefact."""

import hashlib

from pml.core.values import Json, JsonObject, canonical


def digest(value: Json) -> str:
    """Return `sha256:<hex>` of the canonical spelling of `value`."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def digest_call(
    tool: str,
    arguments: JsonObject,
    *,
    definition: str | None = None,
    artefact: str | None = None,
    cwd: str | None = None,
) -> str:
    """Return the digest of one call: what an approval binds and a claim must name.

    `cwd` is where it would be made, if not in the session's workspace: the same command elsewhere is another.
    """
    where: JsonObject = {} if cwd is None else {"cwd": cwd}
    facts = {"tool": tool, "arguments": arguments, "definition": definition, "artefact": artefact}
    return digest({**facts, **where})
