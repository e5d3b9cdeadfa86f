"""How a message to a webhook is signed: its time and its body together, with a key that both sides hold.

Whoever receives it can tell that it is PML's and when it was sent. Knows neither the message nor the key.
"""

import hashlib
import hmac


def sign(body: bytes, *, key: str, at_s: int) -> str:
    """Return the value of `PML-Signature` for a body that is sent at that Unix time."""
    made = hmac.new(key.encode(), b"%d." % at_s + body, hashlib.sha256)
    return f"t={at_s},v1={made.hexdigest()}"
