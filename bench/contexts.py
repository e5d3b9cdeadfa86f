"""A real context on a throw-away home for benchmarks, and busy neighbours on the same database."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from pml.app import Place, open_context
from pml.core.approvals.record import Channel, Decider, DeciderKind, SessionId
from pml.core.ports.records import Session
from pml.service.approvals.lifecycle import Decision, Question, ask, decide
from pml.service.context import Context
from pml.service.session_tree import start_session

ME = Decider(kind=DeciderKind.PERSON, id="bench", channel=Channel.TERMINAL)


@contextlib.asynccontextmanager
async def bench_context(home: Path) -> AsyncGenerator[Context]:
    workspace = home / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    async with open_context(Place(home=home / "pml", workspace=workspace, user_home=home)) as context:
        yield context


async def bench_session(context: Context, home: Path, name: str) -> Session:
    return await start_session(
        context,
        session_id=SessionId(name),
        name=name,
        principal="bench",
        workspace=str(home / "workspace"),
        process=None,
        is_agent=False,
    )


async def ask_and_decide(context: Context, session: Session, number: int) -> None:
    """Put one question and allow it: the pair that is counted."""
    arguments = {"repository": "acme/shop", "title": f"issue {number}", "body": "It breaks. " * 20}
    question = Question(
        session=session, tool="github:create_issue", arguments=arguments, tool_use_id=context.ids.new()
    )
    record = await ask(context, question)
    await decide(context, record.id, Decision(by=ME, digest=record.digest, allow=True))


@contextlib.contextmanager
def busy_writers(home: Path, count: int) -> Generator[None]:
    """Let `count` other processes ask and decide on the same database without a pause."""
    command = [sys.executable, "-m", "bench.contexts", str(home)]
    writers = [
        subprocess.Popen([*command, f"busy-{n}"], stdout=subprocess.PIPE, text=True) for n in range(count)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        yield
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


async def _write_for_ever(home: Path, name: str) -> None:
    async with bench_context(home) as context:
        session = await bench_session(context, home, name)
        print("writing", flush=True)
        number = 0
        while True:
            await ask_and_decide(context, session, number)
            number += 1


if __name__ == "__main__":
    asyncio.run(_write_for_ever(Path(sys.argv[1]), sys.argv[2]))
