"""Code in both languages that does three things, the second of which a person must allow, and what it did.

The tools are those of a small server, `code_ledger.py`, which writes down every call.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.claude import Setting
from tests.e2e.clients import Outcome
from tests.e2e.hubs import is_running, until
from tests.e2e.installed import Server
from tests.e2e.messages_api import Conversation, MessagesApi, Use
from tests.e2e.workspaces import Workspace
from tests.tools import need

EXECUTE: Final = "mcp__pml__execute"
LOOK_S: Final = 60.0  # only ever reached by a command that hangs
LANGUAGES: Final = ("typescript", "python")

LEDGER: Final = Server(
    command=sys.executable, args=(str(Path(__file__).with_name("code_ledger.py").resolve()),)
)
SERVERS: Final = {"ledger": LEDGER.as_config()}
RULES: Final = {"allow": ["ledger:open", "ledger:shut"], "deny": [], "ask": ["*"]}

THREE_CALLS: Final[Mapping[str, str]] = {
    "typescript": """
        const opened: string = await mcp.ledger.open({ what: args.what });
        console.log("opened", args.what);
        const paid = await mcp.ledger.pay({ what: args.what });
        const shut = await mcp.ledger.shut({ what: args.what });
        return [opened, paid, shut];
    """,
    "python": """
opened = await mcp.ledger.open(what=args["what"])
print("opened", args["what"])
paid = await mcp.ledger.pay({"what": args["what"]})
shut = await mcp.ledger.shut(what=args["what"])
[opened, paid, shut]
    """,
}
ASKS: Final = "Approval required to call ledger:pay"
DONE: Final = ["open rent", "pay rent", "shut rent"]  # what the ledger holds, once all of it has run
RETURNED: Final = [f"{line}: done" for line in DONE]
CATCHES: Final[Mapping[str, str]] = {
    "typescript": """
        try {
            await mcp.ledger.pay({ what: "rent" });
        } catch (error) {
            return { caught: `${error.code}: ${error.message}` };
        }
    """,
    "python": """
try:
    await mcp.ledger.pay(what="rent")
except Exception as error:
    found = str(error)
{"caught": found}
    """,
}
AT_ONCE: Final[Mapping[str, str]] = {
    "typescript": 'return await Promise.all(["rent", "gas"].map((what) => mcp.ledger.pay({ what })))',
    "python": """
import asyncio
await asyncio.gather(mcp.ledger.pay(what="rent"), mcp.ledger.pay(what="gas"))
""",
}


def three_calls(language: str) -> dict[str, object]:
    """The arguments of `execute` with the code that makes all three calls."""
    return {"code": THREE_CALLS[language], "language": language, "args": {"what": "rent"}}


def catching(language: str) -> dict[str, object]:
    """The arguments of `execute` with code that goes on when its only call fails."""
    return {"code": CATCHES[language], "language": language}


def at_once(language: str) -> dict[str, object]:
    """The arguments of `execute` with code that makes two calls at once, both of which are asked about."""
    return {"code": AT_ONCE[language], "language": language}


def effects(workspace: Path) -> list[str]:
    """The calls that have run there, in their order."""
    file = workspace / "ledger.txt"
    return file.read_text().splitlines() if file.exists() else []


@dataclass(frozen=True, kw_only=True)
class Books:
    """A workspace with the ledger."""

    workspace: Workspace

    @property
    def effects(self) -> list[str]:
        """The calls that have run, in their order."""
        return effects(self.workspace.path)

    def setting(self, api: MessagesApi) -> Setting:
        place = self.workspace
        return Setting(api=api, server=place.gateway, home=place.home, workspace=place.path)

    def rule(self, permissions: Mapping[str, Sequence[str]], **more: object) -> None:
        """Let the user's own file say this."""
        self.workspace.configure({"permissions": permissions, "mcpServers": SERVERS, **more})

    def allow_all(self) -> None:
        """Allow everything that is asked."""
        ran = self.workspace.pml("approvals", "allow", *(each["id"] for each in self.workspace.pending()))
        assert ran.code == 0, ran.err

    def deny(self, *options: str) -> None:
        """Deny the one thing that is asked."""
        [approval] = self.workspace.pending()
        ran = self.workspace.pml("approvals", "deny", approval["id"], *options)
        assert ran.code == 0, ran.err

    def keep_secret(self, name: str, value: str) -> None:
        """Store a secret, as typed by a person."""
        argv = [sys.executable, "-m", "pml", "secrets", "set", name]
        subprocess.run(argv, input=f"{value}\n", text=True, capture_output=True, timeout=LOOK_S, check=True)

    def gateway_pid(self) -> int:
        """The process of the one gateway that an agent here has started."""
        sessions = self.workspace.pml("sessions", "list", "--json").json["sessions"]
        agents = {each["pid"] for each in sessions if each["workspace"] == str(self.workspace.path)}
        [pid] = [child for agent in agents for child in _children(agent, "-f", "pml stdio")]
        return pid

    def kill_gateway(self) -> int:
        """End the gateway as by `kill -9`, and wait until nothing is left of what it had started."""
        pid = self.gateway_pid()
        started = list(_beneath(pid))
        os.kill(pid, signal.SIGKILL)
        for each in started:
            until(lambda each=each: not is_running(each), "what the gateway had started ends")
        return pid


def _children(pid: int, *which: str) -> list[int]:
    words = [need("pgrep"), "-P", str(pid), *which]
    found = subprocess.run(words, capture_output=True, text=True, timeout=LOOK_S)
    return [int(line) for line in found.stdout.split()]


def _beneath(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _beneath(child)


@dataclass(frozen=True, kw_only=True)
class Question:
    """An approval result as the model was shown it: what is asked, and what takes it up again."""

    headline: str
    text: str
    workflow_id: str
    run_id: str | None  # of the code that asks, if it is code

    @property
    def go_on(self) -> dict[str, object]:
        return {"continue_workflow": {"workflow_id": self.workflow_id, "approved": True}}


def question(shown: str) -> Question:
    """Return what was asked; fails for any other result. Clients show the structured part of a result."""
    assert '"approval_required"' in shown, shown
    told = json.loads(shown)
    context = told["approval_context"]
    headline, _, text = told["description"].partition("\n")
    assert told["workflow_id"] in text
    return Question(
        headline=headline, text=text, workflow_id=context["workflow_id"], run_id=context.get("run_id")
    )


def goes_on(conversation: Conversation) -> Use:
    """The model takes up what waits."""
    return Use(tool=EXECUTE, arguments=question(conversation.results[-1]).go_on)


def value_of(shown: str) -> Any:
    """Return what the code returned; fails for any other result."""
    assert '"result"' in shown, shown
    return json.loads(shown)["result"]


def shown(outcome: Outcome) -> str:
    """Return the structured part of a result, as a client shows it to its model."""
    assert outcome.result is not None, outcome.error
    return json.dumps(outcome.result["structuredContent"])


def error_of(outcome: Outcome) -> Any:
    """Return why a call was refused; fails for any other result."""
    assert outcome.result is not None, outcome.error
    assert outcome.result["isError"] is True, outcome.result
    return outcome.result["structuredContent"]["error"]
