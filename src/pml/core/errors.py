"""Errors raised on purpose. Each says what kind it is; each edge owns one table from kind to its own code.

PmlError
├── Invalid             the input is wrong; says where and what was expected
│   └── ConfigInvalid   a configuration file, with line and column
├── Forbidden           understood, and refused
│   ├── ToolDenied      a deny rule; names it
│   ├── MayNotDecide    this decider may not decide this approval
│   ├── TooManyPending  the session has asked enough
│   ├── TooLargeToAsk  the arguments are more than anybody reads
│   ├── NotApproved     a question about the call was denied, expired or cancelled
│   │   └── AlreadySettled  or withdrawn, since another call had it settled
│   └── IntegrityFailed an artefact is not the one that was named; nothing of it is kept
├── NotFound            no such thing, or no longer
│   ├── ApprovalExpired the time to decide or to collect is over
│   └── WorkflowGone    nothing that waits has this id, for this client and tool
├── Conflict            somebody or something was first
│   ├── AlreadyDecided  says who and when
│   ├── AlreadyClaimed  the approved call was taken before
│   ├── IllegalEvent    this state does not know this event
│   ├── Changed         what was shown is not what is there now
│   ├── WorkflowAborted the call that waited was given up; says what the user wants instead
│   └── ArtefactChanged files of an installed server are not as they were installed
│       └── ProgramChanged  nor are those of a server in the workspace as they were trusted
├── Unavailable         the store, a file or a process cannot serve now; try again or mend it
│   ├── ServerFailed    an MCP server did not start, died, or did not answer
│   ├── LoginFailed     a login to a remote server did not come about; says what to do
│   ├── LoginRequired   a remote server wants a person to log in; nothing of the call has run
│   └── EnvMissing      variables that a server requires are not set
├── ServerRefused       an MCP server answered with a JSON-RPC error, passed on as it is
├── ToolFailed          a tool that code called ran, and says that it failed
└── CodeFailed          code that was run ended with an error, or was ended
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

_SERVER: Final = re.compile(r"server `([A-Za-z0-9_-]+)`")


class ErrorCode(StrEnum):
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class PmlError(Exception):
    """An error raised on purpose. The message is for people; `hint` is the next step, if there is one."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Invalid(PmlError):
    code = ErrorCode.INVALID


class ConfigInvalid(Invalid):
    """A configuration file that cannot be used; `line` and `column` count from 1."""

    def __init__(self, path: str, line: int, column: int, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}:{line}:{column}: {problem}", hint=hint)
        self.path = path
        self.line = line
        self.column = column
        self.problem = problem


class Forbidden(PmlError):
    code = ErrorCode.FORBIDDEN


class ToolDenied(Forbidden):
    """A deny rule named the call. No grant, parent or form lifts it. `rule` is the entry and its place."""

    def __init__(
        self, message: str, *, tool: str = "", rule: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.tool = tool
        self.rule = rule


class MayNotDecide(Forbidden):
    """This decider may not give this decision on this approval."""


class TooManyPending(Forbidden):
    """The session has as many undecided questions, or as much in them, as it may have."""


class TooLargeToAsk(Forbidden):
    """The arguments of a call are more than a question may have."""


class NotApproved(Forbidden):
    """A question that the call depends on was denied, expired or cancelled; `outcome` is its state."""

    def __init__(self, message: str, *, outcome: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome


class AlreadySettled(NotApproved):
    """A question was withdrawn because it is settled for another call; whoever asked it looks again."""


class IntegrityFailed(Forbidden):
    """The bytes of `title` (`memory@1.2.3`) are not those that were named; nothing of it is kept."""

    def __init__(self, title: str, *, expected: str, got: str, hint: str | None = None) -> None:
        super().__init__(
            f"Integrity check failed for {title}: Expected {expected}, got {got}",
            hint=hint or "nothing was installed; check the integrity where the server was published",
        )
        self.title = title
        self.expected = expected
        self.got = got


class NotFound(PmlError):
    code = ErrorCode.NOT_FOUND


class ApprovalExpired(NotFound):
    """The time to decide, or to collect a decision, is over."""


class Conflict(PmlError):
    code = ErrorCode.CONFLICT


class AlreadyDecided(Conflict):
    """Someone was first; the message says who and when."""


class AlreadyClaimed(Conflict):
    """The approved call was taken before; it runs at most once."""


class IllegalEvent(Conflict):
    """The approval's state does not know this event; nothing was changed."""


class Changed(Conflict):
    """What was shown or approved is not what is there now."""


class ArtefactChanged(Conflict):
    """Files of the installed server `server` are not as they were; `tree` is the hash of what is there."""

    def __init__(self, server: str, *, files: tuple[str, ...], tree: str) -> None:
        shown = ", ".join(f"`{file}`" for file in files[:3]) + (" and more" if len(files) > 3 else "")
        super().__init__(
            f"server `{server}` is not started: its files have changed: {shown}",
            hint=f"reinstall it with `pml deps install {server}`, or let a person accept the change",
        )
        self.server = server
        self.files = files
        self.tree = tree


class ProgramChanged(ArtefactChanged):
    """Programs of the configured server `server` are not as they were; `programs` are their hashes now."""

    def __init__(
        self, server: str, *, files: tuple[str, ...], programs: Mapping[str, str], was: str, now: str
    ) -> None:
        super().__init__(server, files=files, tree=now)
        self.hint = "call one of its tools: a person can accept the change"
        self.programs = programs
        self.was = was


class Unavailable(PmlError):
    code = ErrorCode.UNAVAILABLE


class ServerFailed(Unavailable):
    """An MCP server did not start, died, or did not answer; names the server and its last words."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        named = _SERVER.search(message)
        name = "NAME" if named is None else named[1]
        super().__init__(message, hint=hint or f"`pml servers logs {name}` shows what it wrote")


class LoginFailed(Unavailable):
    """A login to a remote server did not come about. Nothing that was given for it is in the message."""


class LoginRequired(Unavailable):
    """The remote server `server` wants a person to log in first; nothing of the call has run there."""

    def __init__(self, server: str) -> None:
        super().__init__(
            f"server `{server}` requires a login", hint=f"a person logs in with `pml login {server}`"
        )
        self.server = server


class EnvMissing(Unavailable):
    """Variables that a server requires are not set; `names` are all that are missing."""

    def __init__(self, server: str, names: tuple[str, ...]) -> None:
        super().__init__(
            f"{server} requires {', '.join(names)}", hint=f"set it with `pml secrets set {names[0]}`"
        )
        self.server = server
        self.names = names


class ServerRefused(PmlError):
    """An MCP server answered with a JSON-RPC error; `error` is that object, as the server wrote it."""

    def __init__(self, message: str, *, error: bytes) -> None:
        super().__init__(message)
        self.error = error


class WorkflowGone(NotFound):
    """Not live, not this principal's, another tool's, or used."""

    def __init__(self) -> None:
        super().__init__("Workflow expired or not found", hint="call the tool again to ask again")


class WorkflowAborted(Conflict):
    """The call was given up; `guidance` is what the user wants instead."""

    def __init__(self, guidance: str | None) -> None:
        super().__init__("Workflow aborted by user" + ("" if guidance is None else f": {guidance}"))
        self.guidance = guidance


class ToolFailed(PmlError):
    """A tool that code called ran, and says that it failed; the message is the tool's own.

    `refusal`: what it is called, if it did not run at all.
    """

    def __init__(self, message: str, *, refusal: str = "tool_failed", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.refusal = refusal


class CodeFailed(PmlError):
    """Code that was run did not come to its end; `refusal` says how, `line` and `column` where, if known."""

    def __init__(
        self,
        message: str,
        *,
        refusal: str,
        line: int | None = None,
        column: int | None = None,
        logs: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.refusal = refusal
        self.line = line
        self.column = column
        self.logs = logs
