"""What registries in tests hold, and a client that counts and remembers what it tells."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pml.core.names import ToolName, parse_tool
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.registry.client.sources import RegistryClient
from pml.registry.client.web import Patience
from tests.fakes import FakeClock

GREET: Final = "acme.tools.text.greet"
CODE: Final = b"export function greet() { return 'hello' }\n"
TOOL: Final = parse_tool("text:greet")
PREFIX: Final = "acme.tools"
PATIENCE: Final = Patience(connect_s=20, read_s=20, total_s=40)  # only ever reached by what hangs


def metadata(fqdn: str = GREET, **more: Any) -> dict[str, Any]:
    return {"fqdn": fqdn, "type": "deno", "routing": "client", "tools": ["greet"], **more}


def encoded(fqdn: str = GREET, **more: Any) -> bytes:
    return json.dumps(metadata(fqdn, **more)).encode()


def hash_of(code: bytes) -> str:
    return str(integrity_of(code, Algorithm.SHA256))


def fill(folder: Path, fqdn: str = GREET, *, code: bytes | None = CODE, **more: Any) -> Path:
    """Put an entry into the registry folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{fqdn}.json").write_bytes(encoded(fqdn, **more))
    if code is not None:
        (folder / f"{fqdn}.ts").write_bytes(code)
    return folder


@dataclass
class Reader:
    """A registry client, and all that it told."""

    home: Path
    clock: FakeClock = field(default_factory=FakeClock)
    patience: Patience = PATIENCE
    warnings: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.client = self.fresh()

    def fresh(self) -> RegistryClient:
        """Return a client as another process would have it: with nothing but what is on disk."""
        self.client = RegistryClient(
            self.home,
            clock=self.clock,
            warn=self.warnings.append,
            debug=self.lines.append,
            patience=self.patience,
        )
        return self.client

    async def find(self, registry: str, *, tool: ToolName = TOOL, prefix: str | None = PREFIX) -> str | None:
        """Return the FQDN of what was found."""
        found = await self.client.find(tool, registry=registry, prefix=prefix)
        return None if found is None else str(found.metadata.fqdn)

    async def code(self, registry: str) -> bytes:
        found = await self.client.find(TOOL, registry=registry, prefix=PREFIX)
        assert found is not None
        return await self.client.code(found)
