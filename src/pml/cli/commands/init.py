"""`pml init`: the workspace's `.pml.json`, with the defaults and trusted, since PML wrote it.

At a terminal it also asks, once, who confirms a call where a client has no form to show.

With `--claude-code` it sets that client up instead.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING

from pml.cli.claude_code import init as claude_init
from pml.cli.exits import Exit
from pml.cli.guards import guard, is_person
from pml.cli.terminal.output import print_json, say, say_prose
from pml.cli.terminal.prompts import choose, is_interactive
from pml.cli.verbs.verbs import add_common
from pml.core.config.file import ModelMayApprove
from pml.core.errors import Invalid
from pml.core.text import visible

if TYPE_CHECKING:
    from pml.app import Place
    from pml.service.context import Context

EXAMPLES = """An existing file is left as it is.

examples:
  pml init                             in the working directory
  pml init --workspace ~/src/shop      somewhere else
  pml init --model-may-approve never   people confirm, also where a client has no form
  pml init --claude-code               let Claude Code ask PML in this workspace
  pml init --claude-code --user        and in every project
  pml init --claude-code --print       only show what that would write, also with --user or --remove"""

NEXT_STEPS = """
next:
  connect         pml init --claude-code       for Claude Code
                  "$(command -v pml)" stdio    what other MCP clients start
  show tools      "expose": ["time:*"] in that file, for servers of PML's
                  catalog (`pml catalog list`)
  add servers     under `mcpServers` in that file, as in any MCP client;
                  then `pml trust`
  add rules       pml rules allow 'github:get_*'
                  pml rules deny 'github:delete_*'
  answer          pml approvals list     or     pml inbox"""


WHO_CONFIRMS = """
Some clients have no form in which PML can ask you. Who confirms a call there
that no rule names?
  p   people, in the inbox or with `pml approvals` (recommended)
  m   the agent's own model, when it says that you agree; never for commands,
      or what a rule asks about"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    parser.add_argument(
        "--model-may-approve",
        choices=[choice.value for choice in ModelMayApprove],
        help="whether an agent's model may confirm a call that no rule names; set in your own file",
    )
    claude_init.add_options(parser)


async def run(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_context
    from pml.service.policy.memory import init_workspace
    from pml.service.policy.policy import current_policy

    place = find_place(args.workspace)
    if args.claude_code:
        if args.remove and not args.print:
            async with open_context(place) as context:
                await guard(context, args)
        return claude_init.run(args, place)
    if args.user or args.project or args.print or args.remove:
        raise Invalid("--user, --project, --print and --remove go with --claude-code")
    async with open_context(place) as context:
        if args.model_may_approve is not None:
            await guard(context, args)
        created = await init_workspace(context, str(place.workspace))
        chosen = args.model_may_approve or await _ask_who_confirms(context, place, args)
        if chosen is not None:
            files = context.configs.of(str(place.workspace))
            await asyncio.to_thread(files.set_user_value, ("approval", "model_may_approve"), chosen)
        policy = await current_policy(context, str(place.workspace))
    path = policy.loaded.workspace.path
    who = policy.settings.approval.model_may_approve
    if args.json:
        print_json({"path": path, "created": created, "trusted": policy.trusted, "model_may_approve": who})
        return Exit.OK
    if chosen is not None:
        say_prose(f'set "model_may_approve": "{chosen}" in {visible(policy.loaded.user.path)}')
    if created:
        say_prose(f"created {visible(path)}")
        say(NEXT_STEPS)
    else:
        say_prose(f"{visible(path)} exists already and stays as it is")
        if policy.untrusted is not None:
            say_prose("  it is not trusted, so it can only tighten: `pml trust` shows what it would allow")
    return Exit.OK


async def _ask_who_confirms(
    context: "Context", place: "Place", args: argparse.Namespace
) -> ModelMayApprove | None:
    """Return what the person at the terminal chose; None if it is set already, or no person can be asked."""
    user = context.configs.of(str(place.workspace)).read().user
    is_set = user.config is not None and user.config.approval.model_may_approve is not None
    if (
        is_set
        or user.error is not None
        or args.json
        or not is_interactive()
        or not await is_person(context, args)
    ):
        return None
    say(WHO_CONFIRMS)
    answers = {"p": ModelMayApprove.NEVER, "m": ModelMayApprove.IF_NO_FORM}
    return ModelMayApprove(choose("p or m [p]:", answers, default=ModelMayApprove.NEVER))
