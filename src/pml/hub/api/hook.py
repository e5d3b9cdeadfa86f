"""The hook of a Claude Code that PML launched on a screen: it judges every tool, and asks and waits itself.

There its permission tool is never asked. An answer other than 200, or none, blocks the tool: the settings
that PML writes for it say so.
"""

from collections.abc import Mapping
from typing import Final

from pml.core.errors import Forbidden, Invalid
from pml.core.sessions.token import AGENT_ROLES
from pml.core.values import Json, JsonObject, is_same
from pml.hub.api.api_request import ApiRequest, Route
from pml.service.session_tree import session_of
from pml.service.sessions.loopback import Permit, permit
from pml.service.sessions.tokens import is_live_token

EVENT: Final = "PreToolUse"
_OWN: Final = "mcp__plexus__"  # the gateway itself judges what is called there, and asks


async def _answer(request: ApiRequest) -> Mapping[str, Json]:
    tool, input, tool_use_id = _read(request.json)
    session = await session_of(request.context, request.session_id)
    if session.waits and tool.startswith(_OWN):
        return _decision("allow", "PML judges it itself, and asks")
    said = await permit(
        request.context,
        session,
        tool_name=tool,
        input=input,
        tool_use_id=tool_use_id,
        on_asked=lambda _: None,
    )
    if not await is_live_token(request.context, request.identity.token_id):
        raise Forbidden("the token is no longer valid")  # it was revoked while the question waited
    return _told(said, input)


def _read(hook: JsonObject) -> tuple[str, JsonObject, str]:
    """Raises: Invalid."""
    tool, input, tool_use_id = hook.get("tool_name"), hook.get("tool_input"), hook.get("tool_use_id", "")
    if hook.get("hook_event_name") != EVENT:
        raise Invalid(f"only the event `{EVENT}` is answered here")
    if not isinstance(tool, str) or not isinstance(input, Mapping) or not isinstance(tool_use_id, str):
        raise Invalid("a hook's input has `tool_name`, `tool_input` and `tool_use_id`")
    return tool, input, tool_use_id


def _told(said: Permit, input: JsonObject) -> JsonObject:
    if not said.allow:
        return _decision("deny", said.message or "Not permitted")
    edited = {} if is_same(said.input, input) else {"updatedInput": said.input}
    return _decision("allow", "allowed by PML", **edited)


def _decision(word: str, reason: str, **more: Json) -> JsonObject:
    answer: JsonObject = {
        "hookEventName": EVENT,
        "permissionDecision": word,
        "permissionDecisionReason": reason,
        **more,
    }
    return {"hookSpecificOutput": answer}


ROUTES: Final = (Route(method="POST", path="/api/hook", roles=AGENT_ROLES, serve=_answer, waits=True),)
