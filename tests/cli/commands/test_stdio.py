"""`pml stdio` as real processes: an agent decides nothing, however it starts the gateway."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.promises import promise

AGENT = Path(__file__).parents[1] / "agent.py"
SERVER = Path(__file__).parents[2] / "upstream" / "odd_server.py"


@pytest.fixture
def place(tmp_path: Path, home: Path) -> Path:
    """A workspace whose user has the odd server, and no rule for it."""
    (home / ".pml").mkdir(mode=0o700)
    configure(home)
    return tmp_path


def configure(home: Path, **permissions: list[str]) -> None:
    servers = {"odd": {"command": sys.executable, "args": [str(SERVER)]}}
    config = {"mcpServers": servers, "permissions": permissions}
    (home / ".pml" / "config.json").write_text(json.dumps(config))


def agent(place: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, str(AGENT), *words]
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=90, check=True)
    return json.loads(ran.stdout)


@promise("agent:cannot-decide")
@pytest.mark.parametrize(
    "launcher",
    [[], ["sh", "-c", '"$@"; true', "sh"], ["env"], ["env", "sh", "-c", '"$@"; true', "sh", "nice"]],
    ids=["directly", "through a shell", "through env", "through several"],
)
def test_an_agent_cannot_allow_its_own_call_however_it_starts_the_gateway(
    place: Path, launcher: list[str]
) -> None:
    tried = agent(place, "decide", *launcher)

    assert tried["code"] == 1
    assert "beneath the agent session" in tried["said"]


@promise("gate:agent-cannot-approve-itself")
@pytest.mark.parametrize("how", ["nest", "pipe"], ids=["a client of its own", "its shell"])
def test_what_an_agent_starts_can_neither_answer_a_form_nor_confirm_a_call(place: Path, how: str) -> None:
    assert agent(place, how) == {
        "with": {"forms": 0, "waits": True},
        "without": {"forms": 0, "waits": True},
    }


@promise("agent:left-alone")
@pytest.mark.skipif(sys.platform != "linux", reason="`setsid` is a command of Linux")
def test_a_gateway_that_an_agent_left_alone_can_neither_answer_a_form_nor_confirm_a_call(place: Path) -> None:
    assert agent(place, "leave") == {
        "with": {"forms": 0, "waits": True},
        "without": {"forms": 0, "waits": True},
    }


@promise("agent:left-alone")
def test_nor_can_one_that_carries_the_mark_of_what_pml_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PML_AGENT", "1")

    assert agent(place, "answer") == {
        "with": {"forms": 0, "waits": True},
        "without": {"forms": 0, "waits": True},
    }


def test_a_client_that_no_agent_started_answers_its_own_forms(place: Path) -> None:
    assert agent(place, "answer") == {
        "with": {"forms": 1, "waits": False},
        "without": {"forms": 0, "waits": False},
    }


@promise("form:read-before-answered")
def test_a_form_that_is_accepted_at_once_is_shown_once_more_and_then_decides_nothing(place: Path) -> None:
    assert agent(place, "hurry") == {"forms": 2, "waits": True}


def test_its_model_confirms_nothing_that_a_rule_asks_for(place: Path, home: Path) -> None:
    configure(home, ask=["odd:*"])

    assert agent(place, "answer") == {
        "with": {"forms": 1, "waits": False},
        "without": {"forms": 0, "waits": True},
    }
