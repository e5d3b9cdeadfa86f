"""Opening the desk for a command: the store put right first, and loud where asking is off."""

import argparse
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from pml.cli.output import complain

if TYPE_CHECKING:
    from pml.service.desk import Desk


@contextlib.asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncGenerator["Desk"]:
    """Yield a desk on which everything is as time and crashes have left it, put right."""
    from pml.app import find_place, open_desk
    from pml.service.policy import asking_off, current_policy, kept_notice
    from pml.service.upkeep import clean_up, sweep

    place = find_place(args.workspace)
    async with open_desk(place) as desk:
        await sweep(desk)
        await clean_up(desk, str(place.workspace))
        policy = await current_policy(desk, str(place.workspace))
        for notice in (asking_off(policy, desk.clock.now()), kept_notice(policy)):
            if notice is not None:
                complain(notice)
        yield desk
