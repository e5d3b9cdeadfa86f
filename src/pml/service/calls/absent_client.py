"""The client that servers find behind a command or a cloud: nobody sits there."""

from pathlib import Path

from pml.core.values import JsonObject


class Nobody:
    """The `Client` that servers find where nobody sits: it has a workspace, and answers no forms."""

    def __init__(self, workspace: str) -> None:
        self._workspace = Path(workspace)

    @property
    def can_elicit(self) -> bool:
        return False

    @property
    def has_roots(self) -> bool:
        return False

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        return {"action": "cancel"}

    async def roots(self) -> JsonObject:
        return {"roots": [{"uri": self._workspace.as_uri(), "name": self._workspace.name}]}

    def logged(self, server: str, params: JsonObject) -> None:
        pass

    def changed(self, server: str, kind: str) -> None:
        pass
