"""A hash proves an artefact, however it is spelled; what proves less is refused."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.errors import Invalid
from pml.core.packages.integrity import Algorithm, integrity_of, parse_integrity
from tests.promises import promise

DATA = b"the artefact"
SHA256 = hashlib.sha256(DATA)
SHA512 = hashlib.sha512(DATA)
BASE64_256 = base64.b64encode(SHA256.digest()).decode()
BASE64_512 = base64.b64encode(SHA512.digest()).decode()


def refusal(text: str) -> str:
    with pytest.raises(Invalid) as caught:
        parse_integrity(text, what="`integrity`")
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (f"sha256-{SHA256.hexdigest()}", f"sha256-{BASE64_256}"),
        (f"sha256-{SHA256.hexdigest().upper()}", f"sha256-{BASE64_256}"),
        (f"sha256-{BASE64_256}", f"sha256-{BASE64_256}"),
        (f"sha512-{BASE64_512}", f"sha512-{BASE64_512}"),
        (f"sha512-{SHA512.hexdigest()}", f"sha512-{BASE64_512}"),
    ],
)
def test_every_spelling_of_a_hash_is_one_hash_and_matches_only_its_artefact(
    text: str, canonical: str
) -> None:
    integrity = parse_integrity(text, what="`integrity`")
    assert str(integrity) == canonical
    assert integrity == integrity_of(DATA, integrity.algorithm)
    assert integrity.matches(DATA)
    assert not integrity.matches(DATA + b".")


@given(data=st.binary(max_size=64), algorithm=st.sampled_from(Algorithm))
def test_a_hash_is_read_back_from_both_of_its_spellings(data: bytes, algorithm: Algorithm) -> None:
    integrity = integrity_of(data, algorithm)
    assert parse_integrity(str(integrity), what="it") == integrity
    assert parse_integrity(f"{algorithm}-{integrity.hex}", what="it") == integrity


@promise("integrity:no-weak-proof")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256",
        "sha256-",
        f"md5-{hashlib.md5(DATA).hexdigest()}",
        f"sha1-{base64.b64encode(hashlib.sha1(DATA).digest()).decode()}",
        f"sha384-{base64.b64encode(hashlib.sha384(DATA).digest()).decode()}",
        f"SHA256-{BASE64_256}",
        f"sha256:{SHA256.hexdigest()}",
        f"sha256-{SHA256.hexdigest()[:-2]}",
        f"sha256-{SHA256.hexdigest()[:-1]}g",
        f"sha512-{SHA256.hexdigest()}",
        f"sha512-{BASE64_256}",
        f"sha256-{BASE64_512}",
        f"sha256-{BASE64_256.rstrip('=')}",
        f"sha256-{BASE64_256}=",
        f"sha256-{'A' * 42}B=",
        f"sha512-{BASE64_512} sha256-{BASE64_256}",
        f" sha512-{BASE64_512}",
        f"sha512-{BASE64_512}\n",
        f"sha512-{BASE64_512}?x",
        SHA256.hexdigest(),
    ],
)
def test_what_is_no_strong_hash_of_one_artefact_is_refused_with_what_was_expected(text: str) -> None:
    message = refusal(text)
    assert message.startswith("`integrity` must be `sha512-<base64>`, `sha256-<base64>` or `sha256-<hex>`")
    assert "\n" not in message


@promise("integrity:no-weak-proof")
@pytest.mark.parametrize("text", [f"package.json:sha256-{BASE64_256}", f"sha256-{BASE64_256}#Package.json"])
def test_a_hash_of_package_json_alone_is_refused_with_that_reason(text: str) -> None:
    assert refusal(text).endswith("a hash of package.json alone is not a proof")
