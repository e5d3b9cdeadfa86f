"""Rules that a model had written, or a form over HTTP: entries of the workspace's file that prove no person.

Whoever said "always" saw one plain call and may decide no other kind, so such an entry covers plain calls
only: where the call runs commands or code it is not there. A person who writes the entry makes it theirs.
"""

from collections.abc import Mapping

from pml.core.rules.ruleset import Call, Effect, Rule, Verdict, VerdictKind, decide, runs_code
from pml.core.values import canonical
from pml.service.context import Context


async def rules_of_models(context: Context, workspace: str) -> Mapping[str, str]:
    """Return the entries of the workspace's file that no person wrote, each with the client."""
    return await context.store.intents.of_models(workspace)


async def without_models(context: Context, workspace: str, call: Call, verdict: Verdict) -> Verdict:
    """Return the verdict; for commands and code, the one without the allows of models."""
    if verdict.kind is not VerdictKind.ALLOW or not runs_code(call.tool, call.arguments):
        return verdict
    models = await rules_of_models(context, workspace)
    file = context.configs.of(workspace).read().workspace.path
    matched = [rule for rule in verdict.matched if client_of(rule, file, models) is None]
    return decide(matched, unsure=verdict.unsure) if len(matched) < len(verdict.matched) else verdict


def client_of(rule: Rule, file: str, models: Mapping[str, str]) -> str | None:
    """Return the client that had the rule written into the workspace's file; None if a person did."""
    is_own = rule.effect is Effect.ALLOW and rule.source is not None and rule.source.file == file
    return models.get(canonical(rule.entry).decode()) if is_own else None
