"""How an install goes, on the terminal: a bar where there is one, a few plain lines elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from pml.cli.output import complain, console
from pml.core.loading import Progress
from pml.core.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class InstallBar:
    """Hears how an install goes. The bar appears with the first step and goes with the last."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._said = ""

    def __enter__(self) -> "InstallBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, step: Progress) -> None:
        if sys.stderr.isatty() and not console(to_stderr=True).is_dumb_terminal:
            self._draw(step)
            if step.done == step.total:
                self.clear()
        elif step.message != self._said:
            complain(visible(step.message))
        self._said = step.message

    def clear(self) -> None:
        """Take the bar away, so that something else can be shown."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None

    def _draw(self, step: Progress) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=console(to_stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        if self._task is not None:
            said = visible(step.message).replace("[", "\\[")
            self._bar.update(self._task, description=said, completed=step.done, total=step.total)
