"""Opening the context for a command: the store put right first, and loud where asking is off."""

import argparse
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from pml.cli.terminal.output import complain_prose

if TYPE_CHECKING:
    from pml.service.context import Context


@contextlib.asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncGenerator["Context"]:
    """Yield a context on which everything is as time and crashes have left it, put right."""
    from pml.app import find_place, open_context
    from pml.service.policy.policy import asking_off, current_policy, kept_notice
    from pml.service.upkeep import clean_up, sweep

    place = find_place(args.workspace)
    async with open_context(place) as context:
        await sweep(context)
        await clean_up(context, str(place.workspace))
        policy = await current_policy(context, str(place.workspace))
        for notice in (asking_off(policy, context.clock.now()), kept_notice(policy)):
            if notice is not None:
                complain_prose(notice)
        yield context
