"""What every use case works with: the ports, introduced to each other once by `app`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pml.core.approvals.record import ApprovalId
from pml.core.ports.store import Store
from pml.core.ports.world import Clock, Configs, Ids, Owners, Processes
from pml.core.sessions.agent_profiles import AgentProfiles

if TYPE_CHECKING:
    from pml.service.policy.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Context:
    store: Store
    clock: Clock
    ids: Ids
    owners: Owners
    processes: Processes
    configs: Configs
    clients: AgentProfiles  # required: without it nothing would guard their settings files
    home: str  # PML_HOME: a command that names it is a person's to decide
    askers: dict[ApprovalId, object] = field(default_factory=dict[ApprovalId, object])  # who asked last, here
    policies: "dict[str, Policy]" = field(default_factory=dict[str, "Policy"])  # by workspace; a cache
