"""The JSON of what use cases return, made of the shapes in `core.wire`: the same on every edge."""

from pml.core.audit.chain import Verification
from pml.core.values import Json
from pml.core.wire import listed_json
from pml.service.approvals.lifecycle import Decided


def decided_json(decided: Decided) -> dict[str, Json]:
    """What came of a decision."""
    memory = decided.remembered
    remembered: Json = None
    if memory is not None:
        problem = None if memory.problem is None else memory.problem.message
        remembered = {
            "scope": memory.scope,
            "entry": memory.entry,
            "counts": memory.counts,
            "added": memory.added,
            "problem": problem,
        }
    return listed_json(decided.record) | {
        "remembered": remembered,
        "released": [record.id for record in decided.released],
    }


def verification_json(verification: Verification) -> dict[str, Json]:
    """What a walk through the audit log found."""
    problems = verification.problems()
    return {
        "ok": not problems,
        "chains": verification.chains,
        "entries": verification.entries,
        "problems": [{"chain": each.chain, "n": each.n, "what": each.what} for each in problems],
    }
