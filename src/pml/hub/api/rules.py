"""Rules and grants over HTTP, for a person: list, explain, add, switch, remove, revoke."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pml.core.config.file import FileKind
from pml.core.errors import Invalid, NotFound
from pml.core.names import parse_tool
from pml.core.rules.ruleset import Call, Effect
from pml.core.text import entry_text, quote
from pml.core.values import Json
from pml.core.wire import grant_json
from pml.hub.api.api_request import PERSON, ApiRequest, Route, read_approval_id
from pml.hub.api.workspaces import named_workspace
from pml.service.policy.model_rules import rules_of_models
from pml.service.policy.policy import current_policy
from pml.service.rules.rulebook import drop_rule
from pml.service.rules.rulebook import switch_rule as switch
from pml.service.rules.rules import enter_rule, explain, rules_json


class ExplainBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    arguments: dict[str, Any] = {}
    workspace: str | None = None


class AddBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for one workspace, or with `user` for all; `release` are waiting calls that were shown."""

    effect: Effect
    entry: Any
    user: bool = False
    workspace: str | None = None
    release: tuple[str, ...] = ()


class RemoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entry: Any
    effect: Effect | None = None
    user: bool = False
    workspace: str | None = None


class SwitchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entry: Any
    effect: Effect
    enabled: bool
    user: bool = False
    workspace: str | None = None


async def list_rules(request: ApiRequest) -> Mapping[str, Json]:
    workspace = await named_workspace(request, request.query.get("workspace"))
    policy = await current_policy(request.context, workspace)
    models = await rules_of_models(request.context, workspace)
    return rules_json(policy, request.context.clock.now(), models)


async def explain_call(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(ExplainBody)
    workspace = await named_workspace(request, body.workspace)
    call = Call(tool=str(parse_tool(body.tool)), arguments=body.arguments, cwd=workspace)
    return (await explain(request.context, workspace, call)).json()


async def add_rule(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(AddBody)
    if body.release and body.effect is not Effect.ALLOW:
        raise Invalid("`release` goes with an allow")
    change = await enter_rule(
        request.context,
        await named_workspace(request, body.workspace),
        body.effect,
        body.entry,
        which=_which(user=body.user),
        shown=[read_approval_id(each) for each in body.release],
        by=request.by,
    )
    return change.json()


async def remove_rule(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(RemoveBody)
    workspace = await named_workspace(request, body.workspace)
    which = _which(user=body.user)
    count = await drop_rule(request.context, workspace, body.effect, body.entry, which=which, by=request.by)
    if not count:
        raise NotFound(f"no rule {quote(entry_text(body.entry))} in the {which}'s file")
    return {"entry": body.entry, "removed": count}


async def switch_rule(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(SwitchBody)
    workspace = await named_workspace(request, body.workspace)
    which = _which(user=body.user)
    switched = await switch(
        request.context, workspace, body.effect, body.entry, enabled=body.enabled, which=which, by=request.by
    )
    if not switched.count:
        state = "disabled" if body.enabled else "enabled"
        raise NotFound(f"no {state} rule {quote(entry_text(body.entry))} in the {which}'s file")
    return {
        "entry": body.entry,
        "enabled": body.enabled,
        "switched": switched.count,
        "denied": [record.id for record in switched.denied],
    }


async def list_grants(request: ApiRequest) -> Mapping[str, Json]:
    return {"grants": [grant_json(grant) for grant in await request.context.store.grants.all()]}


async def revoke_grant(request: ApiRequest) -> Mapping[str, Json]:
    grant_id = request.path["id"]
    await request.context.store.grants.revoke(grant_id, at=request.context.clock.now(), by=request.by)
    return {"id": grant_id, "revoked": True}


def _which(*, user: bool) -> FileKind:
    return FileKind.USER if user else FileKind.WORKSPACE


ROUTES: Final = (
    Route(method="GET", path="/api/rules", roles=PERSON, serve=list_rules, query=("workspace",)),
    Route(method="POST", path="/api/rules", roles=PERSON, serve=add_rule),
    Route(method="POST", path="/api/rules/explain", roles=PERSON, serve=explain_call),
    Route(method="POST", path="/api/rules/remove", roles=PERSON, serve=remove_rule),
    Route(method="POST", path="/api/rules/switch", roles=PERSON, serve=switch_rule),
    Route(method="GET", path="/api/grants", roles=PERSON, serve=list_grants),
    Route(method="DELETE", path="/api/grants/{id}", roles=PERSON, serve=revoke_grant),
)
