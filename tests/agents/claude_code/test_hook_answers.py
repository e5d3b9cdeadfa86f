"""What a hook tells its client: the input that was decided, if it is another than the one asked about."""

from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from pml.agents.claude_code import hooks
from pml.agents.claude_code.gateway_name import own_name
from pml.agents.claude_code.hooks import Asked, HookEvent, answer_json
from pml.core.config.file import FileKind
from pml.core.ports.records import Session
from pml.core.sessions.process import Process
from pml.core.values import Json, JsonObject
from pml.service.sessions.loopback import Permit
from pml.testing.store import MemoryStore
from tests.promises import promise
from tests.service.offices import Office


def told(event: HookEvent, asked: Json, decided: Json) -> JsonObject | None:
    hook = Asked(event=event, session_id="s", tool="Clean", input={"deep": asked}, tool_use_id="u")
    said = cast("dict[str, Any]", answer_json(hook, Permit(allow=True, input={"deep": decided})))
    answer = said["hookSpecificOutput"]
    return answer.get("decision", answer).get("updatedInput")


@promise("gate:approved-is-executed")
@pytest.mark.parametrize("event", HookEvent)
@pytest.mark.parametrize(("asked", "decided"), [(1, True), (0, False), (1, 1.0), (True, 1), ("a", "b")])
def test_an_edit_that_python_takes_for_the_same_is_told_to_the_client(
    event: HookEvent, asked: Json, decided: Json
) -> None:
    updated = told(event, asked, decided)

    assert updated is not None
    assert type(updated["deep"]) is type(decided)


@pytest.mark.parametrize("event", HookEvent)
def test_an_input_that_nobody_edited_is_not_repeated(event: HookEvent) -> None:
    assert told(event, True, True) is None


@promise("hook:same-rules")
@pytest.mark.parametrize("tool", ["mcp__pml__evil__run", "mcp__pml__pml", "mcp__pml__"])
async def test_a_server_whose_name_begins_like_the_gateways_is_judged_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    office = Office(MemoryStore(), tmp_path)
    office.write(FileKind.USER, {"permissions": {"deny": ["*"]}})
    session = await office.session()
    monkeypatch.setattr(hooks, "_has_gateway", AsyncMock(return_value=True))  # as after `pml init`
    said = await _said(office, session, tool)

    assert said is not None
    assert cast("Any", said)["hookSpecificOutput"]["permissionDecision"] == "deny"


@promise("hook:same-rules")
@pytest.mark.parametrize("name", ["call", "execute", "exfiltrate"])
@pytest.mark.parametrize("kept", [".claude/settings.local.json", ".claude.json"])
async def test_a_server_called_pml_is_judged_where_the_gateway_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kept: str
) -> None:
    office = Office(MemoryStore(), tmp_path)
    office.write(FileKind.USER, {"permissions": {"deny": ["*"]}})
    session = await office.session()
    monkeypatch.setattr(hooks, "_has_gateway", AsyncMock(return_value=True))
    monkeypatch.setattr(hooks, "_denied_own", AsyncMock(return_value=None))  # as by rules that ask
    user_home = tmp_path / "someone"
    monkeypatch.setattr(Path, "home", lambda: user_home)
    own = own_name(Path(office.context.home), session.workspace)
    file = (Path(session.workspace) if "local" in kept else user_home) / kept
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{"{own}": {{}}}}')
    said = [await _said(office, session, f"mcp__{server}__{name}") for server in ("pml", own)]

    assert said[0] is not None
    assert (said[1] is None) is (name != "exfiltrate")


async def _said(office: Office, session: Session, tool: str) -> JsonObject | None:
    asked = Asked(event=HookEvent.PRE_TOOL_USE, session_id="s", tool=tool, input={}, tool_use_id="u")
    client = Process(pid=1, started=1.0)
    return await hooks.answer(
        office.context, session, asked, client=client, limit_s=5, on_asked=lambda record: None
    )
