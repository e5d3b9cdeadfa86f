"""A registry that is not on this machine: through the environment's proxy, with its certificate authority."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pml.core.errors import Invalid, Unavailable
from tests.promises import promise
from tests.registry.liar import Liar, body, redirect
from tests.registry.places import GREET, Reader, encoded
from tests.tools import need

REGISTRY = "https://registry.example"
ENTRY = f"/mcp/{GREET}"


@dataclass
class Proxy:
    """A proxy that leads every name to one server, and remembers the names."""

    behind: int = 0
    names: list[str] = field(default_factory=list[str])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.names.append(head.split(" ")[1])
        there, back = await asyncio.open_connection("127.0.0.1", self.behind)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(_pipe(reader, back), _pipe(there, writer))


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass
    finally:
        target.close()


@dataclass(frozen=True)
class Elsewhere:
    liar: Liar
    proxy: Proxy


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of `registry.example`, which is its own authority, with its key."""
    key, signed, both = (tmp_path / name for name in ("key.pem", "signed.pem", "registry.pem"))
    command = [need("openssl"), "req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=registry.example"]
    command += ["-addext", "subjectAltName=DNS:registry.example", "-keyout", str(key), "-out", str(signed)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    both.write_bytes(key.read_bytes() + signed.read_bytes())
    return both


@asynccontextmanager
async def listening(serve: object, context: ssl.SSLContext | None) -> AsyncGenerator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)  # pyright: ignore[reportArgumentType]
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def elsewhere(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Elsewhere]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    liar, proxy = Liar(), Proxy()
    async with listening(liar.serve, context) as behind, listening(proxy.serve, None) as port:
        proxy.behind = behind
        for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield Elsewhere(liar, proxy)


async def test_the_proxy_and_the_authority_of_the_environment_are_used(
    reader: Reader, elsewhere: Elsewhere
) -> None:
    elsewhere.liar.say(ENTRY, body(encoded()))
    assert await reader.find(REGISTRY) == GREET
    assert elsewhere.proxy.names == ["registry.example:443"]


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    reader: Reader, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    elsewhere.liar.say(ENTRY, body(encoded()))
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await reader.find(REGISTRY)
    assert elsewhere.liar.asked == []


@promise("registry:redirects-stay-safe")
@pytest.mark.parametrize(
    "target",
    [
        "http://registry.example/there",
        "https://127.0.0.1/there",
        "https://localhost/there",
        "https://[::1]/there",
        "https://10.0.0.1/there",
        "https://169.254.169.254/there",
        "https://2130706433/there",
        "//127.0.0.1/there",
    ],
)
async def test_a_registry_elsewhere_leads_neither_to_plain_http_nor_inwards(
    reader: Reader, elsewhere: Elsewhere, target: str
) -> None:
    elsewhere.liar.say(ENTRY, redirect(target))
    elsewhere.liar.say("/there", body(encoded()))
    with pytest.raises(Invalid, match="which is refused"):
        await reader.find(REGISTRY)
    assert elsewhere.proxy.names == ["registry.example:443"]
    assert elsewhere.liar.paths == [ENTRY]


async def test_a_registry_elsewhere_may_lead_to_another_place_of_its_own(
    reader: Reader, elsewhere: Elsewhere
) -> None:
    elsewhere.liar.say(ENTRY, redirect("/there"))
    elsewhere.liar.say("/there", body(encoded()))
    assert await reader.find(REGISTRY) == GREET
