"""`pml init`: the workspace's `.pml.json`, with the defaults and trusted, since PML wrote it.

With `--claude-code` it sets that client up instead.
"""

import argparse

from pml.cli import claude_init
from pml.cli.exits import Exit
from pml.cli.guards import guard
from pml.cli.output import print_json, say
from pml.cli.verbs import add_common
from pml.core.errors import Invalid
from pml.core.text import visible

EXAMPLES = """An existing file is left as it is.

examples:
  pml init                             in the working directory
  pml init --workspace ~/src/shop      somewhere else
  pml init --claude-code               let Claude Code ask PML in this workspace
  pml init --claude-code --user        and in every project
  pml init --claude-code --print       only show what that would write, also with --user or --remove"""

NEXT_STEPS = """
next:
  add servers     under `mcpServers` in that file, as in any MCP client; then `pml trust`
  add rules       pml rules allow 'github:get_*'
                  pml rules deny 'github:delete_*'
  answer          pml approvals list"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_common(parser)
    claude_init.add_options(parser)


async def run(args: argparse.Namespace) -> int:
    from pml.app import find_place, open_desk
    from pml.service.policy import current_policy
    from pml.service.remembering import init_workspace

    place = find_place(args.workspace)
    if args.claude_code:
        if args.remove and not args.print:
            async with open_desk(place) as desk:
                await guard(desk, args)
        return claude_init.run(args, place)
    if args.user or args.project or args.print or args.remove:
        raise Invalid("--user, --project, --print and --remove go with --claude-code")
    async with open_desk(place) as desk:
        created = await init_workspace(desk, str(place.workspace))
        policy = await current_policy(desk, str(place.workspace))
    path = policy.loaded.workspace.path
    if args.json:
        print_json({"path": path, "created": created, "trusted": policy.trusted})
    elif created:
        say(f"created {visible(path)}")
        say(NEXT_STEPS)
    else:
        say(f"{visible(path)} exists already and stays as it is")
        if policy.untrusted is not None:
            say("  it is not trusted, so it can only tighten: `pml trust` shows what it would allow")
    return Exit.OK
