"""A process of its own that wants the token of a server: it says `ready`, waits for a line, and prints it."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from pml.core.servers.remote_target import RemoteTarget
from pml.oauth.credentials import OAuthCredentials
from pml.settings.server_logins import DiskServerLogins
from tests.oauth.fakes import MemoryKeyring


async def main(home: Path, url: str) -> None:
    keyring = MemoryKeyring()
    keyring.broken = True
    credentials = OAuthCredentials(DiskServerLogins(home, keyring), home, now=lambda: datetime.now(UTC))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(await credentials.authorization("vault", RemoteTarget(url=url)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
