"""The call on its way, and the connection it came by: whose session, which servers, how it is asked about.

`PendingCall` is what every step of the pipeline works on; what the steps do is `service.calls`' business.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

import msgspec

from pml.core.approvals.deciders import Matter, Way, who_may_allow
from pml.core.approvals.record import Approval, ApprovalId, Role, Subject
from pml.core.audit.entries import Entry, call_judged
from pml.core.config.file import ModelMayApprove
from pml.core.digest import digest_call
from pml.core.errors import NotApproved
from pml.core.names import ToolName
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.packages.permissions import Containment, Permissions
from pml.core.ports.cloud import Cloud
from pml.core.ports.loader import Found, Installed, Installer, Progress, Sources, Told, Variables
from pml.core.ports.records import PausedCall, Session, Workflow
from pml.core.ports.servers import Servers
from pml.core.rules.places import Starts
from pml.core.rules.ruleset import Call, VerdictKind, runs_code
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.sessions.token import TokenRole
from pml.core.values import JsonObject
from pml.service.context import Context
from pml.service.policy.policy import (
    Judgement,
    Policy,
    current_policy,
    judge,
    judge_denied,
    parent_may_decide,
    refuse_denied,
    why,
)
from pml.service.sandboxes import Sandboxes

TOOLS_CALL: Final = "tools/call"
OnProgress = Callable[[JsonObject], None]


class ServerTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server that may be started, and the digest of how."""

    spec: ServerSpec
    digest: str


class CapabilityTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A capability whose code runs here. `digest` is of its code and of all that its registry says of it."""

    found: Found
    code: str
    digest: str
    manifest: Manifest


class CloudTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that runs in the cloud at `url`. `digest` is of that place and of what the registry says."""

    found: Found
    url: str
    digest: str
    manifest: Manifest


Target = ServerTarget | CapabilityTarget | CloudTarget


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

    launch: ServerTarget
    installed: Installed
    registries: Sequence[str]
    prefix: str | None
    brought_by: str | None = None  # a capability that brings it along: nobody else means it by this name


def no_form_hook() -> None:
    """Tell why a program may answer the client's forms: nothing says so."""


def asks_itself() -> bool:
    """Tell whether the client lets the gateway's tools run unasked: nothing says so."""
    return False


@dataclass(frozen=True, kw_only=True)
class Gate:
    context: Context
    session: Session
    servers: Servers
    loader: Loader | None = None
    workshop: Sandboxes | None = None  # where code runs
    cloud: Cloud | None = None
    is_cloud: bool = False  # this is the cloud: what others route here runs here
    is_stdio: bool = False  # a process started us; over HTTP whoever has the token answers its forms
    shows_forms: bool = True  # its client can show the forms that it declares
    is_held: bool = False  # launched by PML, which asks for all it uses; its model confirms nothing
    form_hook: Callable[[], str | None] = no_form_hook  # why a program may answer the client's forms
    asks_nothing: Callable[[], bool] = (
        asks_itself  # whether the client's settings let these tools run unasked
    )
    client_answers: bool = True  # its forms, and its model's word, are answers at all
    told: Callable[[str, Progress], None] | None = None  # hears how the install of a server goes
    # Caches: launches by server name, definitions found equal to their pins, the policy of this loop turn.
    launches: dict[str, ServerTarget] = field(default_factory=dict[str, ServerTarget])
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
class CodeOrigin:
    """Where a call is made that code makes: in which run, and what that run was allowed.

    `root` is the run that a client started with `call`, `chain` are the capabilities that run, outermost
    first. `found` is the capability that makes the call, None for code that a client handed over. `begin`
    keeps that the call is about to be made, `take_back` that nothing of it was. `resumed`: it may have been
    asked about before.
    """

    run_id: str
    root: str
    number: int
    call: PausedCall
    chain: tuple[str, ...]
    covered: frozenset[str]
    found: Found | None
    begin: Callable[[], Awaitable[None]]
    take_back: Callable[[], Awaitable[None]]
    resumed: bool = False
    is_unknown: bool = False  # it was begun before, and nobody knows whether it was made

    @property
    def step(self) -> str:
        """What tells this call from an equal one of the run; one that may have been made is another."""
        return f"{self.run_id}.{self.number}{'?' if self.is_unknown else ''}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it reached the gateway. `offered`: the client lists the tool by its own name.

    What is not a tool is named after its method: `memory:resources/read`; the rules judge it by that name.
    `run_id` is the run that goes on with it; `prefix` is the registry prefix that a client spelt out.
    `no_trust` is why the workspace's file is not trusted, where that was asked for this call already.
    """

    tool: ToolName
    arguments: JsonObject
    offered: bool
    method: str = TOOLS_CALL
    inner: CodeOrigin | None = None
    run_id: str | None = None
    prefix: str | None = None
    no_trust: NotApproved | None = None

    @property
    def is_tool(self) -> bool:
        return self.method == TOOLS_CALL


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


class Make(Protocol):
    """Makes a call that the code asks for, and returns its value as JSON text."""

    async def __call__(self, attempt: Attempt) -> bytes: ...


async def policy_of_turn(gate: Gate) -> Policy:
    """Return the policy as it is now, looked up once for all calls that this turn of the loop judges."""
    if not gate.of_turn:
        gate.of_turn.append(await current_policy(gate.context, gate.session.workspace))
        # For this turn only: kept any longer, a deny written meanwhile would come too late.
        asyncio.get_running_loop().call_soon(gate.of_turn.clear)
    return gate.of_turn[0]


@dataclass(slots=True)
class PendingCall:
    """A call on its way through the pipeline.

    `settled` is an answer that came with it. `on_progress` hears how it goes, `on_install` how an install for
    it goes (if None, `on_progress` does). The rest is found out on the way, and anew whenever time has
    passed: the policy of this moment, what would answer the call and what that offers, and the verdict.
    """

    gate: Gate
    attempt: Attempt
    asking: Asking
    _: KW_ONLY
    settled: Approval | None = None
    has_logged_in: bool = False  # for this very call: it asks for a login once
    on_progress: OnProgress | None = None
    on_install: Told | None = None
    make: Make | None = None  # makes the calls of code that this call runs
    found: CapabilityTarget | CloudTarget | None = None  # what answers it, if no server of this machine does
    target: Target | None = None
    manifest: Manifest | None = None
    policy: Policy = field(init=False)
    judgement: Judgement = field(init=False)
    because: str = field(init=False)  # what gave the verdict, in words

    async def look_up_policy(self) -> None:
        self.policy = await current_policy(self.gate.context, self.gate.session.workspace)

    async def look_up_policy_of_turn(self) -> None:
        self.policy = await policy_of_turn(self.gate)

    async def judge(self) -> None:
        """Find the verdict; a denied call leaves its trace in the audit log. Raises: ToolDenied."""
        gate = self.gate
        self.judgement = await judge(gate.context, self.policy, self._judged(), session=gate.session)
        self.because = why(self.judgement)
        if self.judgement.kind is VerdictKind.DENY:
            await self._refuse()

    async def refuse_denied(self) -> None:
        """Raise ToolDenied if the call is denied; who else might have to allow it is not looked at."""
        gate = self.gate
        denied = await judge_denied(gate.context, self.policy, self._judged(), session=gate.session)
        if denied is not None:
            self.judgement, self.because = denied, why(denied)
            await self._refuse()

    async def _refuse(self) -> None:
        await self.gate.context.store.audit.record(self.entry("denied", self.because))
        refuse_denied(self.judgement, str(self.attempt.tool))

    def _judged(self) -> Call:
        spec = self.target.spec if isinstance(self.target, ServerTarget) else None
        return Call(
            tool=str(self.attempt.tool),
            arguments=self.attempt.arguments,
            cwd=self.gate.session.workspace,
            starts=self.starts(),
            server=None if spec is None else spec.traits,
            definition=self.definition(),
            artefact=None if self.target is None else self.target.digest,
        )

    def definition(self) -> str | None:
        """Return the digest of the tool as its target defines it now."""
        return None if self.manifest is None else self.manifest.definitions.get(self.attempt.tool.action)

    def starts(self) -> Starts | None:
        """Return where an installed server opens relative paths; of configured ones the rules know it."""
        target = self.target
        if not isinstance(target, ServerTarget) or target.spec.artefact is None:
            return None
        workspace = self.gate.session.workspace
        home = self.gate.context.configs.of(workspace).paths.home
        return target.spec.target.starts(workspace=workspace, home=home)

    def entry(self, word: str, because: str) -> Entry:
        """Return what the audit log says of the call."""
        gate, tool = self.gate, str(self.attempt.tool)
        digest = digest_call(
            tool,
            self.attempt.arguments,
            definition=self.definition(),
            artefact=None if self.target is None else self.target.digest,
        )
        return call_judged(gate.session.id, tool, digest, at=gate.context.clock.now(), word=word, why=because)

    def tell_install(self, step: Progress) -> None:
        """Tell how an install for the call goes: its own listener, and the one of the connection."""
        (self.on_install or self.tell_progress)(step)
        name = self.attempt.tool.namespace
        if self.gate.told is not None and name is not None:
            self.gate.told(name, step)

    def tell_progress(self, step: Progress) -> None:
        """Tell of an install as the progress of the call."""
        if self.on_progress is not None:
            total: JsonObject = {} if step.total is None else {"total": step.total}
            self.on_progress({"progress": step.done, "message": step.message, **total})


class ApprovedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may run now, exactly so. `record` is the claimed approval, None if none was needed.

    `covered` are the tools that a capability may use in this run.
    """

    target: Target
    manifest: Manifest
    arguments: JsonObject
    record: Approval | None
    noted: Awaitable[None] | None = None  # done once the audit log holds the call
    covered: frozenset[str] = frozenset()


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


def find_server(gate: Gate, policy: Policy, namespace: str | None) -> ServerTarget | None:
    """Return the server of `namespace`, if a file that counts defines it."""
    spec = None if namespace is None else policy.settings.servers.get(namespace)
    if spec is None:
        return None
    known = gate.launches.get(spec.name)
    if known is None or known.spec is not spec:
        known = ServerTarget(spec=spec, digest=spec.target_digest)
        gate.launches[spec.name] = known
    return known


def deciders(call: PendingCall, matter: Matter, tool: str, *, also: Sequence[str] = ()) -> frozenset[Role]:
    """Return who may allow the question; fixed now, whoever will answer it. `also`: tools that it covers."""
    gate, asking, settings = call.gate, call.asking, call.policy.settings
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


def matter_of(subject: Subject, judged: Judgement, tool: str, arguments: JsonObject) -> Matter:
    """Return what is asked about, as rules and arguments tell it."""
    return Matter(
        subject=subject,
        is_named=judged.is_named,
        is_command=runs_code(tool, arguments),
        is_launch=judged.is_launch,
        is_reserved=judged.reserved,
    )
