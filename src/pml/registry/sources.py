"""Where a server that no file configures is looked up: the bundled catalog, then the configured registry."""

from collections.abc import Sequence
from pathlib import Path

from pml.core.loading import Found
from pml.core.names import ToolName
from pml.core.ports import Clock
from pml.registry.catalog import Catalog
from pml.registry.client import RegistryClient
from pml.registry.lookups import Say


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

    def bundled(self) -> Sequence[Found]:
        """As `Sources.bundled`."""
        return self._catalog.bundled()
