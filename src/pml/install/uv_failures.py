"""What uv says when it fails, told as our own errors: which package, why, and what to do.

A text that is not known is told as it is. Whether something failed is never judged by its words.
"""

import re
from pathlib import Path
from typing import Final

from pml.core.errors import IntegrityFailed, Invalid, NotFound, PmlError, Unavailable
from pml.core.integrity import parse_integrity
from pml.core.text import quote, visible
from pml.install.disk_failures import full_disk
from pml.install.pylock import NO_SOURCE
from pml.install.tools import Output

_NETWORK_HINT: Final = (
    "check the network, the proxy, and the index that pip or uv is set to; nothing was installed"
)
_STRATEGY_HINT: Final = (
    "another of your indexes may have it; set UV_INDEX_STRATEGY=unsafe-best-match if you trust them all"
)
_MISMATCH: Final = re.compile(r"Hash mismatch for `([^`]+)`(.*)", re.DOTALL)
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})")
_NO_WHEEL: Final = re.compile(r"(\S+) has no (?:usable wheels|(wheels with))")
_BROKEN: Final = re.compile(r"Failed to extract|wheel is invalid|[Ii]nvalid wheel|Failed to (?:read|unzip)")
_NETWORK: Final = re.compile(
    r"Failed to fetch|error sending request|Request failed|client error|dns error|certificate|timed out"
    r"|[Nn]etwork connectivity|HTTP status"
)
_MOST_SHOWN: Final = 3
_MOST_REASON: Final = 400  # why a closure cannot be met is told step by step, and the first steps matter


def failure(output: Output, *, package: str, task: str, at: Path) -> PmlError:
    """Return the error for a run of uv in `at` that failed at `task` for `package`, such as `name==1.2.3`."""
    text = " ".join(output.errors.split())
    if full := full_disk(text, task, at=at):
        return full
    if "Hash mismatch" in text:
        return _mismatch(text, package)
    if wheelless := _NO_WHEEL.search(text):
        where = " for this machine" if wheelless[2] else ""
        return Invalid(f"{quote(wheelless[1])} has no wheel{where}; {NO_SOURCE}")
    if _is_absent(text, package):
        hint = _STRATEGY_HINT if "unsafe-best-match" in text else None
        return NotFound(f"no such package or version {quote(package)} in the package index", hint=hint)
    if "URL dependenc" in text:
        return Invalid(f"{quote(package)} depends on a URL; only packages of an index are installed")
    reason = _reason(text)
    if _BROKEN.search(text):
        return Invalid(f"a wheel of {quote(package)} is broken: {reason}", hint="nothing was installed")
    if _NETWORK.search(text):
        return Unavailable(f"the package index cannot be reached to {task}: {reason}", hint=_NETWORK_HINT)
    if "No solution found" in text:
        return Invalid(f"the dependencies of {quote(package)} cannot be met: {reason}")
    return Unavailable(f"`uv` could not {task}: {reason}")


def _reason(text: str) -> str:
    """Return what went wrong without what went well before."""
    told = text.partition("error: ")[2] or text or "it said nothing"
    first, *causes = re.split(r"\s*(?:cause|Caused by): ", told, flags=re.IGNORECASE)
    told = f"{first}: {causes[-1]}" if causes else first
    return visible(told if len(told) <= _MOST_REASON else f"{told[:_MOST_REASON]}…")


def _is_absent(text: str, package: str) -> bool:
    """Tell whether it is `package` itself that no index has, not one that it depends on."""
    name = re.escape(package.split("==")[0])
    return bool(re.search(rf"(?i)no version of {name}[\s=]|Because {name} was not found in", text))


def _mismatch(text: str, package: str) -> IntegrityFailed:
    found = _MISMATCH.search(text)
    title, rest = (found[1], found[2]) if found else (package, "")
    expected, _, computed = rest.partition("Computed:")
    return IntegrityFailed(
        visible(title.replace("==", "@")), expected=_spelled(expected), got=_spelled(computed)
    )


def _spelled(text: str) -> str:
    hashes = [str(parse_integrity(f"sha256-{one}", what="a hash")) for one in _SHA256.findall(text)]
    more = f" or {len(hashes) - _MOST_SHOWN} others" if len(hashes) > _MOST_SHOWN else ""
    return " or ".join(hashes[:_MOST_SHOWN]) + more if hashes else "another hash"
