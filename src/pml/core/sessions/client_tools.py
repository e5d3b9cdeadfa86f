"""Tools that agent clients bring along, such as a shell or an editor: what a call of one would do, in words.

`agents/<client>` supplies the rows, which are data; sentences and cards read them. A tool of a server is
never among them, whatever its name: theirs have a colon. Nothing here decides what may run.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto

import msgspec

from pml.core.values import JsonObject


class Shows(Enum):
    """What the argument is that a tool's sentence shows after its verb."""

    NOTHING = auto()  # the verb is the whole sentence
    PATH = auto()
    TEXT = auto()
    PAGE = auto()  # a URL
    COMMAND = auto()  # a line for a shell, which runs in the folder of the call
    TASK = auto()  # what an agent is to do


class ClientTool(msgspec.Struct, frozen=True, kw_only=True):
    """A client's own tool. `argument` is what its sentence shows, `or_else` stands in where that is missing.

    `background` is the argument that is true where a command is not waited for.
    """

    verb: str
    shows: Shows = Shows.NOTHING
    argument: str = ""
    or_else: str | None = None
    background: str | None = None

    @property
    def command(self) -> str | None:
        """The argument that holds the command line, None if it runs none."""
        return self.argument if self.shows is Shows.COMMAND else None


class ClientTools:
    """The tools of all clients, by their bare names. A name that two clients use differently is not known.

    `server_names` are how clients spell a tool of a server of theirs, as in `mcp__{server}__{tool}`.
    `unsandboxed` are arguments that, where true, make a tool run outside of its client's sandbox.
    """

    def __init__(
        self,
        clients: Iterable[Mapping[str, ClientTool]],
        *,
        server_names: Sequence[str] = (),
        unsandboxed: Iterable[str] = (),
    ) -> None:
        rows: dict[str, set[ClientTool]] = {}
        for name, tool in (row for client in clients for row in client.items()):
            rows.setdefault(name, set()).add(tool)
        self._tools = {name: tool for name, (tool, *others) in rows.items() if not others}
        self._server_names = [spelling.removesuffix("{tool}").split("{server}") for spelling in server_names]
        self._unsandboxed = frozenset(unsandboxed)

    def get(self, tool: str) -> ClientTool | None:
        """Return what is known of the tool, None for one of a server and for a name that is not known."""
        return self._tools.get(tool)

    def server_tool(self, tool: str) -> tuple[str, str] | None:
        """Return the server and the tool that a client means by this name, None if it means no server's."""
        for before, between in self._server_names:
            server, found, rest = tool.removeprefix(before).partition(between)
            if tool.startswith(before) and found:
                return server, rest
        return None

    def leaves_sandbox(self, arguments: JsonObject) -> bool:
        """Tell whether the call would run outside of its client's sandbox."""
        return any(arguments.get(name) is True for name in self._unsandboxed)
