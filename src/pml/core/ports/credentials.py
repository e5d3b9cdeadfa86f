"""The port of what remote servers ask to be shown: tokens, each bound to one server's name and URL.

Logging in is a person's, and how tokens are kept and refreshed is the adapter's.
"""

from typing import Protocol

from pml.core.servers.remote_target import RemoteTarget


class Credentials(Protocol):
    """Tokens for remote servers, each bound to one server's name and URL."""

    async def authorization(self, server: str, target: RemoteTarget) -> str | None:
        """Return the value of `Authorization` for the next request, refreshed where it is about to end.

        None if nobody logged in.
        """
        ...

    async def challenged(
        self, server: str, target: RemoteTarget, *, status: int, challenge: str | None, sent: str | None
    ) -> str | None:
        """Return another value to try, once, after a 401, or a 403 for want of scope, to what sent `sent`.

        None if a person must log in.
        """
        ...
