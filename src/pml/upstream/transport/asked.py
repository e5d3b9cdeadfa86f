"""What a server may ask of the client, and what it may announce. Everything else is refused."""

import time
from collections.abc import Callable
from typing import Final

from pml.core.ports.servers import Client
from pml.core.values import JsonObject
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog
from pml.upstream.transport.peer import NotOffered

_KINDS: Final = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class ClientRelay:
    """Relays between one server and the client."""

    def __init__(
        self, server: str, client: Client, log: ServerLog, limits: Limits, on_changed: Callable[[str], None]
    ) -> None:
        self._server = server
        self._client = client
        self._log = log
        self._limits = limits
        self._on_changed = on_changed
        self._second = 0
        self._logged = 0

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """Return the client's answer. Raises: NotOffered, and what the client raises."""
        match method:
            case "roots/list":
                return await self._client.roots()
            case "elicitation/create" if self._client.can_elicit and params.get("mode", "form") == "form":
                return await self._client.elicit(self._server, params)
            case "elicitation/create":
                raise NotOffered("this client of PML cannot be asked that way")
            case "sampling/createMessage":
                raise NotOffered("PML does not offer sampling: a server cannot use the client's model")
            case _:
                raise NotOffered("PML does not offer this method")

    def notified(self, method: str, params: JsonObject) -> None:
        if method == "notifications/message":
            self._pass_on(params)
        elif method in _KINDS:
            self._on_changed(_KINDS[method])

    def _pass_on(self, params: JsonObject) -> None:
        """Pass a log message on, so many in a second: a flood would fill the client's pipe."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        if self._logged <= self._limits.logged_per_s:
            self._client.logged(self._server, params)
        elif self._logged == self._limits.logged_per_s + 1:
            self._log.note("too many log messages; the rest of this second is dropped")
