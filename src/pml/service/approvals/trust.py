"""Trust in a workspace's file: by exact content, by a person, after seeing what it would loosen."""

import contextlib

import msgspec

from pml.core.approvals.record import Approval, Decider, Subject
from pml.core.config.merged import Loosening
from pml.core.errors import Changed, Conflict, Forbidden, Invalid, NotFound
from pml.core.ports.records import Session, Trust
from pml.core.values import JsonObject
from pml.service.approvals.claims import claim, finish
from pml.service.approvals.lifecycle import Decision, Question, all_pending, ask, decide
from pml.service.context import Context
from pml.service.policy.kept_rules import looser_contents
from pml.service.policy.policy import Policy, current_policy
from pml.service.policy.workspace_programs import pin_programs

TRUST_TOOL = "pml:trust"


def trust_question(session: Session, policy: Policy) -> Question:
    """Return the question whether to trust the workspace's file as it is now."""
    return Question(
        session=session,
        tool=TRUST_TOOL,
        arguments=trust_facts(policy),
        subject=Subject.WORKSPACE_TRUST,
    )


def trust_facts(policy: Policy) -> JsonObject:
    """Return what trusting the file means: its digest, what it would allow, what it would start.

    `unusable` are its entries that start nothing, with the reason; `unlisted` is the user's setting: who asks
    about tools of its servers that no rule names.
    """
    file = policy.loaded.workspace
    loose = policy.untrusted or Loosening()
    unlisted = policy.settings.approval.unlisted.value
    unusable = () if file.config is None else file.config.unusable.values()
    return {
        "path": file.path,
        "digest": file.digest,
        **msgspec.to_builtins(loose),
        "unusable": [each.problem for each in unusable],
        "unlisted": unlisted,
    }


async def trust_workspace(context: Context, workspace: str, *, digest: str, by: Decider) -> Policy:
    """Trust the file if it still has the content that was shown. Raises: NotFound, ConfigInvalid, Changed."""
    policy = await current_policy(context, workspace)
    file = policy.loaded.workspace
    if file.error is not None:
        raise file.error
    if file.digest is None:
        raise NotFound(f"{file.path} does not exist", hint="`pml init` creates it")
    if file.digest != digest:
        raise Changed(f"{file.path} has changed since it was shown", hint="look at it again, then trust it")
    for spec in () if file.config is None else file.config.servers.values():
        await pin_programs(context, workspace, spec)
    files = context.configs.of(workspace)
    looser = [] if file.config is None else await looser_contents(context, files, file.config)
    content = file.text or ""
    trust = Trust(path=file.path, digest=digest, content=content, by=by, trusted_at=context.clock.now())
    await context.store.trusts.add(trust, ends=[each for each in looser if each != digest])
    return await current_policy(context, workspace)


async def untrust_workspace(context: Context, workspace: str, *, by: Decider, forget: bool = False) -> int:
    """End all trust in the workspace's file; return how many contents of it were trusted.

    `forget`: the denies and asks of the last trusted content are kept no longer either.
    """
    path = context.configs.of(workspace).read().workspace.path
    return await context.store.trusts.remove(path, at=context.clock.now(), by=by, kept=forget)


async def answer_trust_questions(context: Context, policy: Policy, *, by: Decider) -> tuple[Approval, ...]:
    """Allow the waiting questions whether to trust the very content that is trusted now."""
    file = policy.loaded.workspace
    if not policy.trusted:
        return ()
    answered: list[Approval] = []
    async for record in all_pending(context):
        asked = (record.tool_input.get("path"), record.tool_input.get("digest"))
        if record.subject is Subject.WORKSPACE_TRUST and asked == (file.path, file.digest):
            with contextlib.suppress(Conflict, Forbidden, NotFound):
                decision = Decision(by=by, digest=record.digest, allow=True)
                answered.append((await decide(context, record.id, decision)).record)
    return tuple(answered)


async def decline_workspace(context: Context, policy: Policy, session: Session, *, by: Decider) -> int:
    """Remember that a person saw the file and does not trust it; return how many questions that answers.

    Calls do not ask about this content again. Where no question waits, one is stored with its answer.
    """
    question = trust_question(session, policy)
    waiting = [record async for record in all_pending(context) if record.subject is Subject.WORKSPACE_TRUST]
    same = [record for record in waiting if record.digest == question.digest]
    for record in same or [await ask(context, question)]:
        with contextlib.suppress(Conflict, NotFound):  # answered meanwhile: what was said first applies
            await decide(context, record.id, Decision(by=by, digest=record.digest, allow=False))
    return len(same)


async def apply_trust(context: Context, record: Approval, session: Session) -> Policy:
    """Carry out an allowed `workspace_trust` approval. Raises: what `claim` and `trust_workspace` raise."""
    claimed = await claim(context, record.id)
    digest = claimed.tool_input.get("digest")
    if claimed.decided_by is None or not isinstance(digest, str):
        raise Invalid(f"approval `{record.id}` holds no decision to trust")
    try:
        policy = await trust_workspace(context, session.workspace, digest=digest, by=claimed.decided_by)
    except Exception as exc:
        await finish(context, record.id, error=str(exc))
        raise
    await finish(context, record.id)
    return policy
