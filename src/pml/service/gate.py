"""One agent's connection at work: whose session it is, which servers stand behind it, how it is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from pml.core.approvals import Approval, ApprovalId, Role, Subject
from pml.core.cloud import Cloud
from pml.core.config import ModelMayApprove
from pml.core.deciders import Matter, Way, who_may_allow
from pml.core.effective import Settings
from pml.core.identity import TokenRole
from pml.core.loading import Found, Installed, Installer, Progress, Sources, Variables
from pml.core.manifests import Manifest, launch_digest
from pml.core.memory import LAUNCH_TOOL
from pml.core.names import ToolName
from pml.core.permissions import Containment, Permissions
from pml.core.ports import PausedCall, Session, Workflow
from pml.core.rules import runs_code
from pml.core.servers import ServerSpec
from pml.core.serving import Servers
from pml.core.values import JsonObject
from pml.service.desk import Desk
from pml.service.policy import Judged, Policy, parent_may_decide
from pml.service.workshop import Workshop


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A server that may be started, and the digest of how."""

    spec: ServerSpec
    digest: str


class Coded(msgspec.Struct, frozen=True, kw_only=True):
    """A capability whose code runs here. `digest` is of its code and of all that its registry says of it."""

    found: Found
    code: str
    digest: str
    manifest: Manifest


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that runs in the cloud at `url`. `digest` is of that place and of what the registry says."""

    found: Found
    url: str
    digest: str
    manifest: Manifest


Target = Launch | Coded | Remote


@dataclass(frozen=True, kw_only=True)
class Loader:
    """What finds, installs and proves servers that no file configures.

    `installing` is what goes on now, and the digest of what is installed or accepted so.
    """

    sources: Sources
    installer: Installer
    variables: Variables
    containment: Callable[[Permissions], Containment]  # what will hold a server that may reach this much
    installing: dict[asyncio.Task[None], str] = field(default_factory=dict[asyncio.Task[None], str])


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A server that was found installed and ready, in this registry and beneath this prefix."""

    launch: Launch
    installed: Installed
    registry: str | None
    prefix: str | None
    brought_by: str | None = None  # a capability that brings it along: nobody else means it by this name


def no_form_hook() -> None:
    """Tell why a program may answer the client's forms: nothing says so."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    desk: Desk
    session: Session
    servers: Servers
    loader: Loader | None = None
    workshop: Workshop | None = None  # where code runs
    cloud: Cloud | None = None
    is_cloud: bool = False  # this is the cloud: what others route here runs here
    is_stdio: bool = False  # a process started us; over HTTP whoever has the token answers its forms
    shows_forms: bool = True  # its client can show the forms that it declares
    is_held: bool = False  # launched by PML, which asks for all it uses; its model confirms nothing
    form_hook: Callable[[], str | None] = no_form_hook  # why a program may answer the client's forms
    client_answers: bool = True  # its forms, and its model's word, are answers at all
    told: Callable[[str, Progress], None] | None = None  # hears how the install of a server goes
    # Caches: launches by server name, definitions found equal to their pins, the policy of this loop turn.
    launches: dict[str, Launch] = field(default_factory=dict[str, Launch])
    pinned: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])
    of_turn: list[Policy] = field(default_factory=list[Policy])
    # Calls that were left paused, by the digest of their question: the next same call uses up its answer.
    paused: dict[str, ApprovalId] = field(default_factory=dict[str, ApprovalId])
    # Installed servers by name, and approved installs by the call that needed them: that call is covered.
    loaded: dict[str, Loaded] = field(default_factory=dict[str, Loaded])
    covered: dict[tuple[str, str], Approval] = field(default_factory=dict[tuple[str, str], Approval])
    # Contents of the workspace's file, by digest, that the first use of a tool asked to trust.
    trust_asked: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Where a call is made that code makes: in which run, and what that run was allowed.

    `root` is the run that a client started with `call`, `chain` are the capabilities that run, outermost
    first. `found` is the capability that makes the call, None for code that a client handed over. `begin`
    keeps that the call is about to be made. `resumed`: it may have been asked about before.
    """

    run_id: str
    root: str
    number: int
    call: PausedCall
    chain: tuple[str, ...]
    covered: frozenset[str]
    found: Found | None
    begin: Callable[[], Awaitable[None]]
    resumed: bool = False
    is_unknown: bool = False  # it was begun before, and nobody knows whether it was made

    @property
    def step(self) -> str:
        """What tells this call from an equal one of the run; one that may have been made is another."""
        return f"{self.run_id}.{self.number}{'?' if self.is_unknown else ''}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it reached the gateway. `offered`: the client lists the tool by its own name.

    What is no tool is named after its method: `memory:resources/read`; the rules judge it by that name.
    `run_id` is the run that goes on with it; `prefix` is the registry prefix that a client spelt out.
    """

    tool: ToolName
    arguments: JsonObject
    offered: bool
    method: str = "tools/call"
    inner: Inner | None = None
    run_id: str | None = None
    prefix: str | None = None

    @property
    def is_tool(self) -> bool:
        return self.method == "tools/call"

    def params(self, arguments: JsonObject) -> JsonObject:
        """Return what is sent to the server, with the arguments that may run."""
        return {"name": self.tool.action, "arguments": arguments} if self.is_tool else arguments


class Asking(Protocol):
    """How a question reaches whoever decides."""

    @property
    def has_form(self) -> bool:
        """Whether the client can put a form before its user."""
        ...

    @property
    def declares_form(self) -> bool:
        """Whether the client says that it shows forms, also where the user switched them off."""
        ...

    @property
    def has_model(self) -> bool:
        """Whether a model makes the call, which may be let to confirm it."""
        ...

    async def put(self, record: Approval) -> Approval:
        """Show the question; return it decided, or undecided when it cannot be waited for any longer."""
        ...


class Suspended(Exception):
    """The call waits for an answer, and is made again when there is one; `run_id` is the code that waits."""

    def __init__(self, record: Approval) -> None:
        super().__init__(record.id)
        self.record = record
        self.run_id: str | None = None


class Paused(Suspended):
    """The call waits for a decision; whoever has the workflow's id can continue it."""

    def __init__(self, record: Approval, workflow: Workflow) -> None:
        super().__init__(record)
        self.workflow = workflow


def find_launch(gate: Gate, policy: Policy, namespace: str | None) -> Launch | None:
    """Return the server of `namespace`, if a file that counts defines it."""
    spec = None if namespace is None else policy.settings.servers.get(namespace)
    if spec is None:
        return None
    known = gate.launches.get(spec.name)
    if known is None or known.spec is not spec:
        known = Launch(spec=spec, digest=launch_digest(spec))
        gate.launches[spec.name] = known
    return known


def deciders(
    gate: Gate, settings: Settings, asking: Asking, matter: Matter, tool: str, *, also: Sequence[str] = ()
) -> frozenset[Role]:
    """Return who may allow the question; fixed now, whoever will answer it. `also`: tools that it covers."""
    session = gate.session
    counts = client_may_answer(gate)
    match settings.approval.model_may_approve:
        case ModelMayApprove.ALWAYS:
            model = True
        case ModelMayApprove.NEVER:
            model = False
        case ModelMayApprove.IF_NO_FORM:
            model = not asking.declares_form  # forms that were switched off make no model a person
    way = Way(
        form=asking.has_form and counts,
        model=model and asking.has_model and counts,
        parent=parent_may_decide(session, settings, (tool, *also), named=False),
        parent_for_named=parent_may_decide(session, settings, (tool, *also), named=True),
        over_http=not gate.is_stdio,
        is_scripted=_is_scripted(gate, matter.subject, tool),
    )
    return who_may_allow(matter, way)


def client_may_answer(gate: Gate) -> bool:
    """Tell whether a form of this client, or its model's word, is an answer at all.

    The form of a child may be answered by the agent above it, or by its own code; a child decides nothing.
    """
    is_child = gate.session.parent_id is not None or gate.session.role is TokenRole.CHILD
    return gate.client_answers and not is_child and not gate.is_held


def _is_scripted(gate: Gate, subject: Subject, tool: str) -> bool:
    """Tell whether a program may answer the form, where only a person's own answer will do."""
    return (subject is Subject.WORKSPACE_TRUST or tool == LAUNCH_TOOL) and gate.form_hook() is not None


def why_no_form(gate: Gate, record: Approval) -> str | None:
    """Return why the client's form is not asked, where that is because a program may answer it."""
    is_scripted = _is_scripted(gate, record.subject, record.tool_name)
    return gate.form_hook() if is_scripted and Role.FORM not in record.deciders else None


def matter_of(subject: Subject, judged: Judged, tool: str, arguments: JsonObject) -> Matter:
    """Return what is asked about, as rules and arguments tell it."""
    return Matter(
        subject=subject,
        is_named=judged.is_named,
        is_command=runs_code(tool, arguments),
        is_launch=judged.is_launch,
        is_reserved=judged.reserved,
    )
