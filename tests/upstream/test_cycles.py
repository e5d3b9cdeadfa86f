from tests.upstream.cycles import start_and_stop
from tests.upstream.fleets import Harbour


async def test_starting_and_stopping_leaves_no_process_descriptor_or_file(harbour: Harbour) -> None:
    await start_and_stop(harbour, 25)
