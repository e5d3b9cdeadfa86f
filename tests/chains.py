"""Verifying audit chains that a test holds in its hand."""

from collections.abc import Iterable, Mapping

from pml.core.audit.chain import Head, Link, Problem, Verification


def verify(links: Iterable[Link], kept: Mapping[str, Head]) -> list[Problem]:
    """Return what is wrong with `links` (ordered by chain, then n), given the heads kept elsewhere."""
    verification = Verification(kept)
    for link in links:
        verification.see(link)
    return verification.problems()
