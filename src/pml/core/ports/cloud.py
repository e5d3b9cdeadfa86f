"""The port of the cloud: tools with `routing: "server"`, which run elsewhere, by the rules of that place."""

from typing import Final, Protocol

from pml.core.values import JsonObject

KEY: Final = "PML_CLOUD_KEY"  # the variable that holds the key, as `pml secrets set` keeps it


class Cloud(Protocol):
    async def call(self, url: str, name: str, arguments: JsonObject, *, key: str | None) -> bytes:
        """Have the cloud at `url` call the tool that `name` (an FQDN) means; return its result as it came.

        It is tried again only where nothing can have run. Raises: Unavailable if the cloud cannot be reached
        or refuses the key; ServerRefused for a JSON-RPC error; ServerFailed if the outcome is not known.
        """
        ...

    async def close(self) -> None: ...
