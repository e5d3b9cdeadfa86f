"""The state diagram of docs/states.md, drawn from the table in `pml.core.approvals.record`.

`python -m tests.docs.states_diagram` prints it.
"""

from pml.core.approvals.record import ENDED, State
from pml.core.approvals.states import TRANSITIONS


def diagram() -> str:
    """Return the diagram as a fenced Mermaid block."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.PENDING}"]
    lines += [f"    {before} --> {after}: {event.__name__}" for (before, event), after in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in State if state in ENDED]
    return "\n".join([*lines, "```"])


if __name__ == "__main__":
    print(diagram())
