"""Trust over HTTP, for a person: what a workspace's file would loosen, and trusting that very content."""

from collections.abc import Mapping
from typing import Final

import msgspec

from pml.core.config.file import ConfigFile
from pml.core.config.merged import Loosening, loosening
from pml.core.config.trust_facts import launch_lines
from pml.core.rules.ruleset import Effect, Rule
from pml.core.text import entry_text, visible
from pml.core.values import Json
from pml.hub.api.api_request import PERSON, ApiRequest, Route
from pml.hub.api.workspaces import named_workspace
from pml.service.approvals.trust import answer_trust_questions, trust_workspace, untrust_workspace
from pml.service.policy.policy import Policy, current_policy, kept_notice

MAX_CONTENT_BYTES: Final = 256 * 1024  # more than a person reads
_PREFIX: Final = "sha256:"
_NOTHING: Final = Loosening()


class TrustBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`digest` is that of the content that was shown, with or without its prefix."""

    digest: str
    workspace: str | None = None


class RemoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`forget`: the denies and asks of the last trusted content are kept no longer either."""

    workspace: str | None = None
    forget: bool = False


async def show_trust(request: ApiRequest) -> Mapping[str, Json]:
    workspace = await named_workspace(request, request.query.get("workspace"))
    return _shape(await current_policy(request.context, workspace))


async def trust(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(TrustBody)
    workspace = await named_workspace(request, body.workspace)
    digest = _PREFIX + body.digest.removeprefix(_PREFIX)
    policy = await trust_workspace(request.context, workspace, digest=digest, by=request.by)
    answered = await answer_trust_questions(request.context, policy, by=request.by)
    return {**_shape(policy), "answered": [record.id for record in answered]}


async def remove_trust(request: ApiRequest) -> Mapping[str, Json]:
    body = request.read(RemoveBody)
    workspace = await named_workspace(request, body.workspace)
    forgotten = await untrust_workspace(request.context, workspace, by=request.by, forget=body.forget)
    return {**_shape(await current_policy(request.context, workspace)), "forgotten": forgotten}


def _shape(policy: Policy) -> dict[str, Json]:
    """Return what trusting the file means, or meant: of a trusted file the same is told.

    `starts` are the `launches` in words, one thing a line. `unlisted` is the setting: who asks about tools
    of theirs that no rule names.
    """
    file = policy.loaded.workspace
    facts: dict[str, Json] = msgspec.to_builtins(_loosening(policy))
    is_short = file.text is not None and len(file.text.encode()) <= MAX_CONTENT_BYTES
    return {
        "workspace": policy.workspace,
        "path": file.path,
        "exists": file.digest is not None or file.error is not None,
        "digest": file.digest,
        "trusted": policy.trusted,
        "needed": policy.untrusted is not None,
        "broken": None if file.error is None else visible(file.error.message),
        "kept": kept_notice(policy),
        "content": file.text if is_short else None,
        **facts,
        "starts": [*launch_lines(facts["launches"])],
        "unusable": [] if file.config is None else [each.problem for each in file.config.unusable.values()],
        "unlisted": policy.settings.approval.unlisted,
        "tightens": _tightening(file.config),
        "keeps": [_entry(rule) for rule in (policy.kept.rules if policy.kept else ())],
    }


def _loosening(policy: Policy) -> Loosening:
    config = policy.loaded.workspace.config
    return _NOTHING if config is None else policy.untrusted or loosening(config) or _NOTHING


def _tightening(config: ConfigFile | None) -> list[Json]:
    """Return the rules that apply whether the file is trusted or not."""
    rules = () if config is None else config.rules
    return [_entry(rule) for rule in rules if rule.effect is not Effect.ALLOW]


def _entry(rule: Rule) -> Json:
    return {"effect": rule.effect, "entry": entry_text(rule.entry)}


ROUTES: Final = (
    Route(method="GET", path="/api/trust", roles=PERSON, serve=show_trust, query=("workspace",)),
    Route(method="POST", path="/api/trust", roles=PERSON, serve=trust),
    Route(method="POST", path="/api/trust/remove", roles=PERSON, serve=remove_trust),
)
