"""Standard input of this process, for the agent that it runs.

A terminal is the person's to type at, not an agent's to wait for; closed or absent, it is empty.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import Final

_PIECE: Final = 64 * 1024


async def given_pieces(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Yield what comes by a pipe, a socket or a file, piece by piece, to its end."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # it is closed
        return
    if stat.S_ISREG(mode):
        while piece := os.read(descriptor, _PIECE):
            yield piece
    elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        with os.fdopen(os.dup(descriptor), "rb", buffering=0) as pipe:
            reader = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            try:
                while piece := await reader.read(_PIECE):
                    yield piece
            finally:
                transport.close()
                os.set_blocking(descriptor, True)  # others read there too
