"""Names of tools as clients and people write them, and the call that each means."""

from collections.abc import Sequence

from pml.core.errors import Invalid
from pml.core.names import Fqdn, ToolName, parse_fqdn, parse_tool, tool_of
from pml.core.values import JsonObject
from pml.service.call import Attempt, Gate
from pml.service.calls.prepare import unknown_tool
from pml.service.calls.tools import Known, Tools, known_tools
from pml.service.policy.policy import Policy, current_policy


async def resolve_tool(gate: Gate, name: str, arguments: JsonObject) -> Attempt:
    """Return the call of the tool that `name` means, as things are now. Raises: NotFound."""
    policy = await current_policy(gate.context, gate.session.workspace)
    tools = await known_tools(gate, policy, problems={})
    return resolve_among(tools, policy, name, arguments)


def resolve_among(tools: Tools, policy: Policy, name: str, arguments: JsonObject) -> Attempt:
    """As `resolve_tool`, with what is known already. Raises: NotFound."""
    known = find_known(tools, name)
    if known is not None:
        return Attempt(tool=known.tool, arguments=arguments, offered=is_listed(tools, known))
    if fqdn := _as_fqdn(name):
        prefix = f"{fqdn.org}.{fqdn.project}"
        return Attempt(tool=tool_of(fqdn), arguments=arguments, offered=False, prefix=prefix)
    tool = _unknown(name, policy)
    if tool is None:
        raise policy.broken[0] if policy.broken else unknown_tool(name, [*tools.by_wire, *tools.by_name])
    return Attempt(tool=tool, arguments=arguments, offered=False)


def find_known(tools: Tools, name: str) -> Known | None:
    """Return the tool of this wire name or `namespace:action`."""
    return tools.by_wire.get(name) or tools.by_name.get(name)


def is_listed(tools: Tools, known: Known) -> bool:
    """Tell whether clients see the tool by its own name, which no other tool shares."""
    return known.listed and tools.by_wire.get(known.wire) is known


def untrusted_servers(policy: Policy) -> Sequence[str]:
    """Return the servers that only a file defines which nobody trusts yet."""
    config = policy.loaded.workspace.config
    return () if policy.trusted or config is None else sorted(config.servers)


def _unknown(name: str, policy: Policy) -> ToolName | None:
    """Return the tool of a server of which nothing is known yet."""
    servers = [*policy.settings.servers, *untrusted_servers(policy)]
    found = next((server for server in servers if name.startswith(f"{server}__")), None)
    try:
        if ":" in name:
            return parse_tool(name)
        return None if found is None else ToolName(namespace=found, action=name[len(found) + 2 :])
    except Invalid:
        return None


def _as_fqdn(name: str) -> Fqdn | None:
    """Return the capability that is meant by its full name."""
    try:
        return parse_fqdn(name)
    except Invalid:
        return None
