"""Kept rules: the denies and asks of the content trusted last, in force while the file has another, or none.

They go when a person trusts other content, or forgets them. Content that tightened ends the trust in looser
content, so that putting that back undoes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.record import Channel, Decider, DeciderKind
from pml.core.audit.entries import workspace_untrusted
from pml.core.config.file import ConfigFile
from pml.core.config.merged import is_looser, kept_rules
from pml.core.errors import ConfigInvalid
from pml.core.ports.records import Content, Standing
from pml.core.ports.world import ConfigFiles, FileState
from pml.core.rules.ruleset import Rule
from pml.core.text import visible
from pml.service.context import Context

KEEPER: Final = Decider(kind=DeciderKind.RULE, id="pml", channel=Channel.RULES)
AS_TRUSTED: Final = " (as last trusted)"  # after the name of the file whose rules are kept


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept. With an `error`, nobody knows which rules they are."""

    digest: str
    rules: tuple[Rule, ...] = ()
    error: ConfigInvalid | None = None


async def note_content(context: Context, files: ConfigFiles, standing: Standing) -> Standing:
    """Keep what is found trusted, end the trust in what is looser than what is found; return what stands."""
    file = files.read().workspace
    if file.config is None or file.digest is None:
        return standing
    if not standing.trusted:
        await _end_trust(context, file.path, await looser_contents(context, files, file.config))
    elif standing.kept != file.digest:
        await context.store.trusts.keep(file.path, Content(digest=file.digest, content=file.text))
        return await context.store.trusts.standing(file.path, file.digest)
    return standing


async def kept_of(context: Context, files: ConfigFiles, file: FileState) -> Kept | None:
    """Return what counts of the content trusted last, if the file lacks anything of it."""
    content = await context.store.trusts.kept(file.path)
    if content is None:
        return None
    config = _parsed(files, content)
    if not isinstance(config, ConfigFile):
        return Kept(digest=content.digest, error=config)
    rules = kept_rules(config, file.config)
    return Kept(digest=content.digest, rules=rules) if rules else None


async def keeps_more(context: Context, files: ConfigFiles, than: ConfigFile) -> bool:
    """Tell whether a deny or ask of the content trusted last stands nowhere in this one."""
    content = await context.store.trusts.kept(files.read().workspace.path)
    config = None if content is None else _parsed(files, content)
    return config is not None and (not isinstance(config, ConfigFile) or bool(kept_rules(config, than)))


async def looser_contents(context: Context, files: ConfigFiles, than: ConfigFile) -> list[str]:
    """Return the digests of trusted contents that are looser: one of them put back would undo a deny."""
    found: list[str] = []
    for content in await context.store.trusts.of(files.read().workspace.path):
        config = _parsed(files, content)
        if not isinstance(config, ConfigFile) or is_looser(config, than):
            found.append(content.digest)
    return found


async def _end_trust(context: Context, path: str, digests: Sequence[str]) -> None:
    for digest in digests:
        await context.store.trusts.forget(path, digest)
        entry = workspace_untrusted(path, at=context.clock.now(), by=KEEPER, digest=digest)
        await context.store.audit.record(entry)


def notice_of(kept: Kept, file: FileState) -> str:
    """Return what is to be said while rules are kept that the file does not have."""
    path = visible(file.path)
    if file.error is not None:
        state = f"{path} is broken"
    else:
        state = f"{path} is missing" if file.digest is None else f"{path} is not trusted as it is now"
    if kept.error is not None:
        return f"{state}, and the content that was trusted last cannot be read: everything asks"
    rules = "1 rule" if len(kept.rules) == 1 else f"{len(kept.rules)} rules"
    return f"{state}: {rules} of the content that was trusted last (deny, ask) kept in force"


def _parsed(files: ConfigFiles, content: Content) -> ConfigFile | ConfigInvalid:
    name = f"{files.read().workspace.path}{AS_TRUSTED}"
    try:
        return files.parse_workspace(content.content or "", name=name)
    except ConfigInvalid as exc:
        return exc
