"""Progress of an install on the terminal: a bar where there is one, a few plain lines elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final

from pml.cli.terminal.output import complain, console
from pml.core.ports.loader import Progress
from pml.core.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_STAYS: Final = "installed "  # such a step names what is there now; all others are told only while they last


class InstallBar:
    """Hears how an install goes. The bar appears with the first step; a line tells what was installed."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._said = ""

    def __enter__(self) -> "InstallBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, step: Progress) -> None:
        is_new = step.message != self._said
        self._said = step.message
        if step.message.startswith(_STAYS):
            self.clear()
            if is_new:
                complain(visible(step.message))
        elif sys.stderr.isatty() and not console(to_stderr=True).is_dumb_terminal:
            self._draw(step)
        elif is_new:
            complain(visible(step.message))

    @property
    def is_shown(self) -> bool:
        return self._bar is not None

    def clear(self) -> None:
        """Take the bar away, so that something else can be shown."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def _draw(self, step: Progress) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        said = visible(step.message or "preparing").replace("[", "\\[")
        total = step.total if step.done != step.total else None  # after the last step work is unmeasured
        counted = "" if total is None else f"{step.done}/{total}"
        if self._bar is None:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[counted]}"),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=console(to_stderr=True), transient=True)
            self._bar.add_task(said, total=total, counted=counted)
            self._bar.start()
        [task] = self._bar.tasks
        task.total = total  # rich's `update` cannot set it to None
        self._bar.update(task.id, description=said, completed=step.done, counted=counted)
