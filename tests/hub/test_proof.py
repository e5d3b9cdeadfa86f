"""What the hub shows of itself before a browser sends it a token: nobody else can, nor under another name."""

import hashlib
import hmac

import pytest

from pml.core.sessions.token import TokenRole, read_token
from tests.hub.hubs import PORT, HubRig
from tests.promises import promise

NONCE = "0f" * 32
HOST = f"127.0.0.1:{PORT}"


def asked(token_id: str, nonce: str = NONCE, host: str = HOST) -> str:
    return f"/proof?token={token_id}&nonce={nonce}&host={host}"


def read(rig: HubRig) -> tuple[str, str]:
    found = read_token(rig.tokens[TokenRole.PERSON])
    assert found is not None
    return found


@promise("inbox:token-only-to-the-hub")
async def test_the_hub_proves_to_anybody_that_it_knows_a_token_without_telling_it(rig: HubRig) -> None:
    token_id, secret = read(rig)
    key = hashlib.sha256(secret.encode()).hexdigest()

    got = await rig.send("GET", asked(token_id), None)

    expected = hmac.new(key.encode(), f"{NONCE}\n{HOST}".encode(), "sha256").hexdigest()
    assert (got.status, got.json) == (200, {"proof": expected})
    assert got.headers["cache-control"] == "no-store"


@promise("inbox:token-only-to-the-hub")
async def test_a_proof_holds_for_one_nonce_and_one_name_of_the_hub(rig: HubRig) -> None:
    token_id, _ = read(rig)
    proofs = {
        (await rig.send("GET", asked(token_id, nonce, host), None)).json["proof"]
        for nonce in (NONCE, "1f" * 32)
        for host in (HOST, "hub.example:4445")
    }

    assert len(proofs) == 4


@promise("inbox:token-only-to-the-hub")
@pytest.mark.parametrize(
    "host", [f"127.0.0.1:{PORT + 1}", "127.0.0.1", f"localhost:{PORT}", "evil.example", ""]
)
async def test_under_a_name_that_is_not_its_own_the_hub_proves_nothing(rig: HubRig, host: str) -> None:
    token_id, _ = read(rig)

    got = await rig.send("GET", asked(token_id, host=host), None)

    assert (got.status, got.json["error"]["code"]) == (400, "invalid")


@pytest.mark.parametrize("nonce", ["", "0f", "0F" * 32, "0f" * 65, "xy" * 32])
async def test_a_nonce_that_is_none_gets_no_proof(rig: HubRig, nonce: str) -> None:
    token_id, _ = read(rig)

    got = await rig.send("GET", asked(token_id, nonce), None)

    assert (got.status, got.json["error"]["code"]) == (400, "invalid")


async def test_of_a_token_that_is_not_there_the_hub_says_so(rig: HubRig) -> None:
    got = await rig.send("GET", asked("0" * 12), None)

    assert (got.status, got.json["error"]["code"]) == (404, "not_found")
