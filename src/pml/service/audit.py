"""Verifying the audit log while other processes go on writing to it."""

from pml.core.audit.chain import GENESIS, Head, Verification
from pml.service.context import Context


async def verify_audit(context: Context) -> Verification:
    """Return a verification that has seen every link of every chain."""
    kept = {head.chain: head for head in await context.store.audit.heads_kept()}
    verification = Verification(kept)
    async for link in context.store.audit.links():
        verification.see(link)
    for head in await context.store.audit.heads_kept():
        # A chain that began while we read has a head by now, but we may not have seen all of its links.
        kept.setdefault(head.chain, Head(chain=head.chain, n=0, hash=GENESIS))
    return verification
