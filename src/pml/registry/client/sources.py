"""Sources of servers that no file configures: the bundled catalog, then the configured registry."""

from collections.abc import Sequence
from pathlib import Path

from pml.core.errors import NotFound
from pml.core.names import ToolName
from pml.core.ports.loader import Found
from pml.core.ports.world import Clock
from pml.core.text import quote
from pml.registry.catalog import SOURCE, Catalog
from pml.registry.client.client import RegistryClient
from pml.registry.client.lookups import Say


class CatalogAndRegistry:
    """The port `Sources`. `warn` and `debug` get lines for people."""

    def __init__(self, home: Path, *, clock: Clock, warn: Say, debug: Say) -> None:
        self._catalog = Catalog()
        self._registry = RegistryClient(home, clock=clock, warn=warn, debug=debug)

    async def find(self, tool: ToolName, *, registry: str | None, prefix: str | None) -> Found | None:
        """As `Sources.find`."""
        found = None if tool.namespace is None else self._catalog.find(tool.namespace)
        if found is not None or registry is None or tool.namespace is None:
            return found
        return await self._registry.find(tool, registry=registry, prefix=prefix)

    async def code(self, found: Found) -> bytes:
        """As `Sources.code`."""
        if found.source == SOURCE:
            raise NotFound(f"{quote(str(found.metadata.fqdn))} is of the bundled catalog and has no code")
        return await self._registry.code(found)

    def bundled(self) -> Sequence[Found]:
        """As `Sources.bundled`."""
        return self._catalog.bundled()

    def known(self, registry: str | None) -> Sequence[Found]:
        """As `Sources.known`."""
        return () if registry is None else self._registry.known(registry)
