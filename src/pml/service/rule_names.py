"""Rules whose names no known server has: looked for when a rule is written, and by doctor. Starts nothing."""

from collections.abc import Iterable, Sequence

from pml.core.loading import Found
from pml.core.manifests import launch_digest
from pml.core.rule_names import Doubt, doubts_about
from pml.core.rules import Rule
from pml.core.values import JsonObject
from pml.service.desk import Desk
from pml.service.policy import Policy


async def doubtful_rules(
    desk: Desk, policy: Policy, rules: Iterable[Rule], bundled: Sequence[Found]
) -> list[Doubt]:
    """Return what is odd about the rules, by what servers were seen to offer and the catalog says."""
    config = policy.loaded.workspace.config
    specs = {**policy.settings.servers, **({} if config is None else config.servers)}
    offers: dict[str, Sequence[JsonObject]] = {}
    for found in bundled:
        for dependency in found.metadata.mcp_deps:
            if dependency.name not in specs:
                offers[dependency.name] = found.metadata.tools
    for name, spec in specs.items():
        manifest = await desk.store.manifests.get(name, launch_digest(spec))
        if manifest is not None:
            offers[name] = manifest.tools
    return [doubt for rule in rules for doubt in doubts_about(rule, offers, specs)]
