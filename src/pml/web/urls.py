"""URLs that PML is told to reach: what is not a plain http or https URL is refused. Resolves nothing."""

from urllib.parse import SplitResult, urlsplit

from pml.core.errors import Invalid
from pml.core.text import has_hidden, quote


def split_url(text: str, *, whose: str) -> SplitResult:
    """Return the parts of the URL of `whose` (`a registry`). Raises: Invalid, also if a password is in it."""
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, half of an IPv6 address
        raise Invalid(f"{quote(text)} is not an http or https URL") from None
    if not is_usable or has_hidden(text) or " " in text or "\\" in text:
        raise Invalid(f"{quote(text)} is not an http or https URL")
    if "@" in parts.netloc:
        raise Invalid(f"{whose}'s URL must not have a user or password in it")
    return parts
