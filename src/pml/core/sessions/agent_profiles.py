"""Agent clients as the rules know them: their settings files, their own tools, and the marks they leave.

Each client's row is supplied by `agents/<client>`; what all of them have in common is joined here.
"""

from collections.abc import Mapping, Sequence

import msgspec

from pml.core.rules.settings_files import SettingsFiles
from pml.core.sessions.client_tools import ClientTool, ClientTools

_OWN_FILE = ".pml.json"


class AgentProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One agent client.

    `settings_files` are ends of paths, in which `*` stands for a part of one name. `named_by` are beginnings
    of them that are enough to name one in a command. `readers` are its own tools that change no folder.
    `marks` are variables that it sets for what it starts, each with whom the mark tells of. `tools`,
    `server_name` and `unsandboxed` are as in `ClientTools`.
    """

    settings_files: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()
    readers: frozenset[str] = frozenset()
    marks: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    tools: Mapping[str, ClientTool] = msgspec.field(default_factory=dict[str, ClientTool])
    server_name: str | None = None
    unsandboxed: frozenset[str] = frozenset()


class AgentProfiles:
    """All clients in one table. PML's own settings file is in it, whichever clients are."""

    def __init__(self, clients: Sequence[AgentProfile]) -> None:
        self.settings_files = SettingsFiles(
            (_OWN_FILE, *(path for client in clients for path in client.settings_files)),
            named_by=[text for client in clients for text in client.named_by],
        )
        self.readers = frozenset(name for client in clients for name in client.readers)
        self.marks = {name: whose for client in clients for name, whose in client.marks.items()}
        self.tools = ClientTools(
            [client.tools for client in clients],
            server_names=[client.server_name for client in clients if client.server_name is not None],
            unsandboxed=[name for client in clients for name in client.unsandboxed],
        )
