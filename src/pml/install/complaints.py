"""What Deno complains of when it does not install, as errors of ours: a table, and the rest word for word."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pml.core.errors import IntegrityFailed, Invalid, NotFound, PmlError, Unavailable
from pml.core.text import quote, visible
from pml.install.disk_failures import full_disk
from pml.install.tools import Output

NOT_THERE: Final = "Could not find npm package tarball at"
_TRY_AGAIN: Final = "check the network, the proxy and the registry in your `.npmrc`, then try again"
_LAST_WORDS_CHARS: Final = 500


def complaint(output: Output, title: str, *, at: Path) -> PmlError:
    """Return the error that Deno, asked for `title` (`name@1.2.3`) in the folder `at`, ended with."""
    if full := full_disk(output.errors, f"install {quote(title)}", at=at):
        return full
    for pattern, error in _COMPLAINTS:
        if found := pattern.search(output.errors):
            return error(found, title)
    if output.code < 0:
        return Unavailable(f"installing {quote(title)} was ended by signal {-output.code}")
    said = visible(output.last_words[-_LAST_WORDS_CHARS:])
    return Unavailable(f"{quote(title)} could not be installed: {said}", hint=_TRY_AGAIN)


def _missing(found: re.Match[str], title: str) -> PmlError:
    name = found[1]
    if name == title.rpartition("@")[0]:
        return NotFound(f"no such package or version {quote(title)} in the npm registry")
    return NotFound(f"no such package {quote(name)} in the npm registry, and {quote(title)} needs it")


def _other_bytes(found: re.Match[str], title: str) -> PmlError:
    expected, got = (text if "-" in text else f"sha512-{text}" for text in (found[2], found[3]))
    return IntegrityFailed(visible(found[1]), expected=visible(expected), got=visible(got))


def _outside(found: re.Match[str], title: str) -> PmlError:
    return Invalid(f"a package of {quote(title)} would write outside its folder: {quote(found[1])}")


def _link(found: re.Match[str], title: str) -> PmlError:
    return Invalid(f"a package of {quote(title)} brings a link: {quote(found[1].rpartition('/')[2])}")


def _elsewhere(found: re.Match[str], title: str) -> PmlError:
    return Invalid(
        f"{quote(title)} depends on {quote(found[1])}, which is not in the npm registry",
        hint="only packages of a registry have a hash that can be verified",
    )


def _refused(found: re.Match[str], title: str) -> PmlError:
    return Unavailable(
        f"the npm registry refuses {quote(title)}: status {found[1]}",
        hint="check the credentials in your `.npmrc`",
    )


def _unreached(found: re.Match[str], title: str) -> PmlError:
    return Unavailable(
        f"the npm registry did not give {quote(title)}: {visible(found[0][:200])}", hint=_TRY_AGAIN
    )


_Error = Callable[[re.Match[str], str], PmlError]
_COMPLAINTS: Final[tuple[tuple[re.Pattern[str], _Error], ...]] = (
    (re.compile(r"checksum did not match .* for (\S+)\.\s+Expected: (\S+)\s+Actual: (\S+)"), _other_bytes),
    (re.compile(r"Extracted path '(.*)' of npm tarball was not in output directory"), _outside),
    (re.compile(r"Ignoring npm tarball entry type \w+ for '(.*)'"), _link),
    (re.compile(r"specified a dependency outside of npm \((.*?)\)"), _elsewhere),
    (re.compile(r"parsing version requirement for dependency \"[^\"]*\": \"(.*)\""), _elsewhere),
    (re.compile(r"npm package '([^']*)' does not exist"), _missing),
    (re.compile(r"Could not find npm package '([^']*)' matching"), _missing),
    (re.compile(r"Could not find version '[^']*' for npm package '([^']*)'"), _missing),
    (re.compile(r"Bad response: (401|403)"), _refused),
    (re.compile(r"Bad response: \d+|client error \(.*|error sending request|error decoding.*"), _unreached),
)
