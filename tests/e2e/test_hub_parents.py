"""Claude Code that supervises Claude Code: it launches children, decides what they ask, hears of their end.

The parent is launched by a person, or connected by one with a token or over `pml stdio`; the hub is real.
"""

import json
import os
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from pml.downstream.keepalive import TICK_S
from tests.e2e.hubs import PERMIT, Agent, Hub, Room, bash, hub_running, is_running, plexus, until
from tests.e2e.messages_api import Conversation, Said, Turn, Use
from tests.promises import promise

MANY: Final = 30  # turns: more than any of these conversations has
OWN_TOOLS: Final = ("--allowedTools", "mcp__plexus")  # the client's own question is not what is tested
LAUNCH: Final = "pml:session_launch"
CHECKED_S: Final = 30.0  # how often the client looks for calls that have been silent for too long
SHORTEST_S: Final = 1.0  # of the limits that the client knows

Request = Mapping[str, Any]


def launch(prompt: str, **more: object) -> Use:
    return plexus("session_launch", prompt=prompt, **more)


def allowed_launch(room: Room, prompt: str, **more: object) -> Sequence[Turn]:
    """What a connected parent says: it asks for a launch, a person allows it, and it goes on."""

    def go_on(conversation: Conversation) -> Use:
        assert "Approval required to launch an agent" in conversation.results[-1]
        asked = launch_question(room)
        room.allow(asked)
        return plexus("call", continue_workflow={"workflow_id": asked["id"], "approved": True})

    return launch(prompt, **more), go_on


def launch_question(room: Room) -> dict[str, Any]:
    return until(lambda: next(iter(waiting(room, LAUNCH)), None), "a launch waits")


def bash_question(room: Room) -> dict[str, Any]:
    """What a child asks, which a launch of its own came before."""
    return until(lambda: next(iter(waiting(room, "Bash")), None), "a command waits")


def waiting(room: Room, tool: str) -> list[dict[str, Any]]:
    return [each for each in room.pending() if each["tool"] == tool]


def respond(request: Request, *, allow: bool, **more: object) -> Use:
    return plexus("loopback_respond", approval_id=request["approval_id"], allow=allow, **more)


def leave(request: Request) -> Use:
    raise AssertionError(f"it was given {request}")


def supervising(*first: Turn, decide: Callable[[Request], Use] = leave, children: int = 1) -> Sequence[Turn]:
    """What a parent says: `first`, then it decides whatever is asked until all its children have ended."""

    def go_on(conversation: Conversation) -> Said:
        heard = [json.loads(result) for result in conversation.results if result.startswith("{")]
        told = [each for each in heard if "approval_required" not in each]
        ended = [each for each in told if each.get("kind") == "ended"]
        if len(ended) == children:
            return f"They said: {', '.join(each['session']['run']['result'] for each in ended)}."
        decided = [each["id"] for each in told if "status" in each]
        requests = [request for each in told for request in each.get("requests", ())]
        waiting = [request for request in requests if request["approval_id"] not in decided]
        is_news = "kind" in told[-1] and told[-1]["kind"] != "request"
        return decide(waiting[0]) if waiting and not is_news else plexus("session_wait")

    return *first, *[go_on] * MANY


def by_edit(command: str) -> Callable[[Request], Use]:
    """Allow what is asked as this command instead."""
    return lambda request: respond(request, allow=True, updated_input={"command": command})


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Generator[Hub]:
    with hub_running(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def room(hub: Hub) -> Room:
    return hub.room()


@pytest.fixture(scope="module", autouse=True)
def clients(hub: Hub) -> "Generator[Clients]":
    """Start what takes long at once, so that it waits while the other tests run."""
    with ExitStack() as stack:
        yield Clients(hub.room(), stack)


class Clients:
    """Two clients that ask, and give up calls that are silent: one sooner than it is told that it waits."""

    LIMITS_S: Final = {"patient": TICK_S + 3, "hasty": SHORTEST_S}

    def __init__(self, room: Room, stack: ExitStack) -> None:
        self.room = room
        self._running = {name: stack.enter_context(self._client(name)) for name in self.LIMITS_S}

    def finish(self, name: str) -> list[str]:
        """Wait for the end of a client, and return what its model was shown."""
        ran = self._running[name].finish()
        assert ran.code == 0, ran.out + ran.err
        return self.room.hub.api.results_of(f"{name}-task")

    def _client(self, name: str) -> AbstractContextManager[Agent]:
        room, limit_ms = self.room, int(self.LIMITS_S[name] * 1000)
        room.hub.api.also(f"{name}-task", bash(f"touch {name}.mark"))
        token = room.hub.token("session", "--session", name, cwd=room.path)
        return room.connected(
            f"do the {name}-task",
            room.over_http(token),
            *("--permission-prompt-tool", PERMIT),
            settings={"CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": str(limit_ms)},
        )


def test_a_launched_parent_that_a_person_let_launch_does_and_decides_for_its_child(room: Room) -> None:
    room.hub.api.also("lead-task", *supervising(launch("do the child-task"), decide=by_edit("touch b.mark")))
    room.hub.api.also("child-task", bash("touch a.mark"), "I made it")
    with room.launched("do the lead-task", "--may-launch", "--name", "lead") as agent:
        ran = agent.finish()
    assert (ran.code, ran.out) == (0, "They said: I made it.\n"), ran.err
    assert room.marks() == ["b.mark"]
    [bashed] = room.asked()
    by = {"kind": "parent", "id": room.session("lead")["id"], "channel": "loopback"}
    assert bashed["decided_by"] == by
    [offered, *_] = [
        each.tools for each in room.hub.api.conversations if "child-task" in each.opening.split()
    ]
    assert not {"mcp__plexus__session_launch", "mcp__plexus__loopback_respond"} & {*offered}


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_connected_parent_decides_for_two_children_that_ask_at_once(room: Room, transport: str) -> None:
    def decide(request: Request) -> Use:
        if "left" in request["tool_input"]["command"]:
            return respond(request, allow=False, message="not the left one")
        return respond(request, allow=True)

    left, right = f"left-{transport}", f"right-{transport}"
    both = *allowed_launch(room, f"do the {left}"), *allowed_launch(room, f"do the {right}")
    room.hub.api.also(f"both-{transport}", *supervising(*both, decide=decide, children=2))
    room.hub.api.also(left, bash("touch left.mark"))
    room.hub.api.also(right, bash("touch right.mark"))
    server = (
        room.over_http(room.hub.token("session", cwd=room.path)) if transport == "http" else room.over_stdio()
    )
    with room.connected(f"do both-{transport}", server, *OWN_TOOLS) as agent:
        ran = agent.finish()
    assert ran.code == 0, ran.out + ran.err
    [told_left], [told_right] = room.hub.api.results_of(left), room.hub.api.results_of(right)
    assert "not the left one" in told_left
    assert "not the left one" not in told_right
    assert room.marks() == ["right.mark"]


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_launch_waits_for_a_person_whatever_the_model_says(room: Room, transport: str) -> None:
    def insist(conversation: Conversation) -> Use:
        said = {"workflow_id": launch_question(room)["id"], "approved": True}
        return plexus("call", continue_workflow=said)

    word = f"eager-{transport}"
    room.hub.api.also(word, launch("do the nothing-task"), insist)
    server = (
        room.over_http(room.hub.token("session", cwd=room.path)) if transport == "http" else room.over_stdio()
    )
    with room.connected(f"do the {word}", server, *OWN_TOOLS) as agent:
        ran = agent.finish()
    assert ran.code == 0, ran.out + ran.err
    first, again = room.hub.api.results_of(word)
    assert "Approval required to launch an agent" in first
    assert "Approval required to launch an agent" in again
    assert room.hub.api.results_of("nothing-task") == []
    [asked] = room.asked()
    assert asked["input"]["parent_may_decide"] == "unlisted"
    assert "form" not in asked["may_allow"] or transport == "stdio"
    assert not {"model", "parent"} & {*asked["may_allow"]}


@promise("supervise:deny-never-lifted")
def test_what_an_ask_rule_names_is_a_persons_and_not_the_parents(room: Room) -> None:
    def pending(conversation: Conversation) -> Use:
        bash_question(room)
        return plexus("loopback_pending")

    def decide(conversation: Conversation) -> Use:
        [request] = json.loads(conversation.results[-1])["approvals"]
        assert not request["may_decide"]
        return respond(request, allow=True)

    room.settle({"permissions": {"allow": [], "ask": ["Bash"], "deny": []}})
    room.hub.api.also("named-task", *allowed_launch(room, "do the asked-task"), pending, decide)
    room.hub.api.also("asked-task", bash("touch asked.mark"))
    server = room.over_http(room.hub.token("session", cwd=room.path))
    with room.connected("do the named-task", server, *OWN_TOOLS) as agent:
        assert agent.finish().code == 0
        assert room.marks() == []
        room.allow(bash_question(room))
        until(room.marks, "the command runs")
    assert "may not" in room.hub.api.results_of("named-task")[-1]


@promise("supervise:power-from-a-person")
def test_a_person_who_allows_a_launch_can_keep_its_answers_to_themselves(room: Room) -> None:
    def narrowed(conversation: Conversation) -> Use:
        asked = launch_question(room)
        room.allow(asked, "--tools", "Bash", "--parent-may", "nothing")
        return plexus("call", continue_workflow={"workflow_id": asked["id"], "approved": True})

    def pending(conversation: Conversation) -> Use:
        bash_question(room)
        return plexus("loopback_pending")

    def decide(conversation: Conversation) -> Use:
        [request] = json.loads(conversation.results[-1])["approvals"]
        return respond(request, allow=True)

    room.hub.api.also("kept-task", launch("do the own-task", name="own"), narrowed, pending, decide)
    room.hub.api.also("own-task", bash("touch own.mark"))
    server = room.over_http(room.hub.token("session", cwd=room.path))
    with room.connected("do the kept-task", server, *OWN_TOOLS) as agent:
        assert agent.finish().code == 0
        own = room.session("own")
        assert (own["run"]["allowed_tools"], own["parent_may_decide"]) == (["Bash"], "nothing")
        assert room.marks() == []
        room.deny(bash_question(room))
    assert "no person let the sessions above" in room.hub.api.results_of("kept-task")[-1]


@promise("reserved:person-only")
def test_what_only_a_person_may_decide_is_not_given_to_the_parent(room: Room) -> None:
    def decide_all(conversation: Conversation) -> Use:
        [waiting] = json.loads(conversation.results[-1])["approvals"]
        assert not waiting["may_decide"]
        return respond(waiting, allow=True)

    def pending(conversation: Conversation) -> Use:
        bash_question(room)
        return plexus("loopback_pending")

    room.hub.api.also("bold-task", *allowed_launch(room, "do the sly-task"), pending, decide_all)
    room.hub.api.also("sly-task", bash("touch pml.mark"))
    server = room.over_http(room.hub.token("session", cwd=room.path))
    with room.connected("do the bold-task", server, *OWN_TOOLS) as agent:
        assert agent.finish().code == 0
        room.deny(room.question(), "--message", "that is for people")
        until(lambda: room.hub.api.results_of("sly-task"), "the child is told")
    assert "person" in room.hub.api.results_of("bold-task")[-1]
    assert "that is for people" in room.hub.api.results_of("sly-task")[-1]
    assert room.marks() == []


def test_a_child_that_may_launch_supervises_its_own_child(room: Room) -> None:
    room.hub.api.also("top-task", *supervising(launch("do the mid-task", may_launch=True)))
    room.hub.api.also("mid-task", *supervising(launch("do the low-task"), decide=by_edit("touch low.mark")))
    room.hub.api.also("low-task", bash("touch a.mark"), "low is done")
    with room.launched("do the top-task", "--may-launch") as agent:
        ran = agent.finish()
    assert (ran.code, ran.out) == (0, "They said: They said: low is done..\n"), ran.err
    assert room.marks() == ["low.mark"]


def test_at_the_bottom_nothing_more_is_launched(room: Room) -> None:
    room.hub.token("session", "--session", "level-1", cwd=room.path)
    room.hub.token("session", "--session", "level-2", "--parent", "level-1", cwd=room.path)
    token = room.hub.token("session", "--session", "level-3", "--parent", "level-2", cwd=room.path)
    third = allowed_launch(room, "do the fourth-task", may_launch=True)
    room.hub.api.also("third-task", *third, plexus("session_wait"))
    room.hub.api.also("fourth-task", launch("do the fifth-task"))
    with room.connected("do the third-task", room.over_http(token), *OWN_TOOLS) as agent:
        assert agent.finish().code == 0
        [told] = until(lambda: room.hub.api.results_of("fourth-task"), "the fourth is told")
    assert "sessions may stand 4 deep" in told
    assert room.hub.api.results_of("fifth-task") == []


@promise("launch:ends-with-parent")
def test_when_a_person_stops_the_parent_its_children_end(room: Room) -> None:
    prepare_errand(room, "stopped", launch("do the stopped-errand", name="errand"))
    with room.launched("do the stopped-task", "--may-launch", "--name", "boss") as agent:
        bash_question(room)
        child, boss = room.session("errand"), room.session("boss")
        ran = room.pml("sessions", "stop", boss["id"])
        assert ran.code == 0, ran.err
        assert agent.finish().code != 0
        room.assert_over(child, state="stopped")
    assert not is_running(boss["pid"])


@promise("launch:ends-with-parent")
def test_when_a_connected_parent_is_killed_its_children_end(room: Room) -> None:
    prepare_errand(room, "client", *allowed_launch(room, "do the client-errand", name="errand"))
    with room.connected("do the client-task", room.over_stdio(), *OWN_TOOLS) as agent:
        bash_question(room)
        child = room.session("errand")
        agent.kill()
        room.assert_over(child, state="stopped")


@promise("launch:ends-with-parent")
def test_when_the_gateway_of_a_connected_parent_is_killed_its_children_end(room: Room) -> None:
    prepare_errand(room, "gateway", *allowed_launch(room, "do the gateway-errand", name="errand"))
    with room.connected("do the gateway-task", room.over_stdio(), *OWN_TOOLS) as agent:
        bash_question(room)
        child = room.session("errand")
        os.kill(agent.child("pml stdio"), signal.SIGKILL)
        room.assert_over(child, state="failed")


@promise("launch:ends-with-parent")
def test_when_the_token_of_a_connected_parent_is_revoked_its_children_end(room: Room) -> None:
    prepare_errand(room, "revoked", *allowed_launch(room, "do the revoked-errand", name="errand"))
    token = room.hub.token("session", cwd=room.path)
    with room.connected("do the revoked-task", room.over_http(token), *OWN_TOOLS) as agent:
        bash_question(room)
        child = room.session("errand")
        ran = room.pml("token", "revoke", token.split("_")[1])
        assert ran.code == 0, ran.err
        room.assert_over(child, state="stopped")
        agent.kill()


def prepare_errand(room: Room, word: str, *first: Turn) -> None:
    """Have a parent launch a child with `first`, which asks, and wait for it without answering."""
    waiting = [plexus("session_wait", timeout_s=60)] * MANY
    room.hub.api.also(f"{word}-task", *first, *waiting)
    room.hub.api.also(f"{word}-errand", bash("touch a.mark"))


def test_a_parent_stops_a_child_and_what_it_asked_is_taken_back(room: Room) -> None:
    children: list[dict[str, Any]] = []

    def stop(conversation: Conversation) -> Use:
        bash_question(room)
        children.append(room.session("idle"))
        return plexus("session_stop", session_id=children[0]["id"])

    room.hub.api.also("stopping-task", *allowed_launch(room, "do the idle-task", name="idle"), stop)
    room.hub.api.also("idle-task", bash("touch a.mark"))
    server = room.over_http(room.hub.token("session", cwd=room.path))
    with room.connected("do the stopping-task", server, *OWN_TOOLS) as agent:
        assert agent.finish().code == 0
    assert json.loads(room.hub.api.results_of("stopping-task")[-1])["state"] == "stopped"
    room.assert_over(children[0], state="stopped")


def test_a_parent_hears_that_its_child_was_killed(room: Room) -> None:
    children: list[dict[str, Any]] = []

    def kill(request: Request) -> Use:
        children.append(room.session("victim"))
        os.kill(children[0]["pid"], signal.SIGKILL)
        until(lambda: room.session("victim")["ended_at"], "its end is noticed")
        return plexus("session_wait")

    grim = allowed_launch(room, "do the short-task", name="victim")
    room.hub.api.also("grim-task", *supervising(*grim, decide=kill))
    room.hub.api.also("short-task", bash("touch a.mark"))
    server = room.over_http(room.hub.token("session", cwd=room.path))
    with room.connected("do the grim-task", server, *OWN_TOOLS) as agent:
        ran = agent.finish()
    assert "Claude Code ended with signal 9" in json.loads(ran.out)["result"], ran.err
    room.assert_over(children[0], state="failed")


@promise("permit:blocks-until-decided")
def test_a_question_outlives_the_time_after_which_the_client_gives_up_a_silent_call(
    clients: Clients,
) -> None:
    room = clients.room
    [waiting] = until(
        lambda: [each for each in room.pending() if each["session"] == "patient"], "the patient one asks"
    )
    checked_at = datetime.fromisoformat(waiting["created_at"]) + timedelta(seconds=CHECKED_S + 1)
    until(lambda: datetime.now(UTC) > checked_at, "the client has looked for silent calls")
    room.allow(waiting)
    [waited], [gave_up] = clients.finish("patient"), clients.finish("hasty")
    assert "sent no response or progress" not in waited
    assert "sent no response or progress" in gave_up
    assert room.marks() == ["patient.mark"]
