"""Rules for journals of code that every store shares: what it refuses, and in which words.

Does not know where a journal is stored.
"""

from datetime import timedelta
from typing import Final

import msgspec

from pml.core.code.journal import CodeRun, Step
from pml.core.errors import Conflict, Invalid, NotFound
from pml.core.values import check

UNKNOWN_KEPT: Final = timedelta(days=1)  # for a person to be asked about a call that may have been made


def check_code_run(run: CodeRun) -> None:
    """Raise Invalid for a run that cannot be stored exactly."""
    check([run.arguments, run.args, run.code, *run.covered], what="the run")


def check_finished(step: Step) -> None:
    """Raise Invalid for a step that is not finished, or that cannot be stored exactly."""
    if step.place is None or step.at_ms is None:
        raise Invalid(f"step {step.number} of run `{step.run_id}` has no place or no time")
    check(msgspec.to_builtins(step.fault), what="the fault")


def no_run(run_id: str) -> NotFound:
    return NotFound(f"no run `{run_id}`: it has ended", hint="start it again")


def taken_by(run_id: str, owner: str) -> Conflict:
    return Conflict(
        f"run `{run_id}` is going on, in the process `{owner}`", hint="wait until it ends or asks again"
    )


def refused_finish(step: Step, known: Step) -> Conflict:
    """Return why what came of `step` is not kept, beside what is `known` of it."""
    if known.place is not None:
        return Conflict(f"step {step.number} of run `{step.run_id}` is finished already")
    return Conflict(f"step {step.number} of run `{step.run_id}` was begun as another")
