"""Hashes of artefacts, as metadata and locks spell them: `sha512-<base64>`, `sha256-<base64>` or hex.

However it was spelled, a hash has one value and one canonical spelling. Weak and partial proofs are refused:
a wrong artefact could be made to fit them.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pml.core.errors import Invalid
from pml.core.text import quote

NO_PROOF: Final = "a hash of package.json alone is not a proof"

_SPELLING: Final = re.compile(r"(sha256|sha512)-([A-Za-z0-9+/=]+)")
_HEX: Final = re.compile(r"[0-9A-Fa-f]+")
_EXPECTED: Final = "`sha512-<base64>`, `sha256-<base64>` or `sha256-<hex>` of the artefact"


class Algorithm(StrEnum):
    SHA256 = "sha256"
    SHA512 = "sha512"


_BYTES: Final = {Algorithm.SHA256: 32, Algorithm.SHA512: 64}


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """The hash that an artefact must have; `str` gives the canonical spelling."""

    algorithm: Algorithm
    digest: bytes

    def __str__(self) -> str:
        return f"{self.algorithm}-{base64.b64encode(self.digest).decode()}"

    @property
    def hex(self) -> str:
        return self.digest.hex()

    def matches(self, data: bytes) -> bool:
        """Tell whether `data` is the artefact."""
        return hmac.compare_digest(integrity_of(data, self.algorithm).digest, self.digest)


def integrity_of(data: bytes, algorithm: Algorithm) -> Integrity:
    """Return the hash of `data`."""
    return Integrity(algorithm=algorithm, digest=hashlib.new(algorithm, data).digest())


def parse_integrity(text: str, *, what: str) -> Integrity:
    """Return the hash that `text`, which is `what`, spells. Raises: Invalid."""
    if "package.json" in text.lower():
        raise Invalid(f"{what} is {quote(text)}: {NO_PROOF}", hint=f"give {_EXPECTED}")
    found = _SPELLING.fullmatch(text)
    if found is None:
        raise Invalid(f"{what} must be {_EXPECTED}, not {quote(text)}")
    algorithm = Algorithm(found[1])
    digest = _decode(found[2], _BYTES[algorithm])
    if digest is None:
        raise Invalid(
            f"{what} must be {_EXPECTED}, not {quote(text)}: "
            f"that is not the base64 or hex of {_BYTES[algorithm]} bytes"
        )
    return Integrity(algorithm=algorithm, digest=digest)


def _decode(text: str, size: int) -> bytes | None:
    """Return the `size` bytes that `text` spells; hex and base64 of one size never have the same length."""
    if len(text) == 2 * size:
        return bytes.fromhex(text) if _HEX.fullmatch(text) else None
    try:
        digest = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    # spare bits in the last character would give one hash several spellings
    return digest if len(digest) == size and base64.b64encode(digest).decode() == text else None
