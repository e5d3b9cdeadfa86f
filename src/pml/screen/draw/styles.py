"""The few styles of the terminal inbox: the terminal's own 16 colours, so that light and dark both serve."""

from typing import Final

from rich.style import Style

PLAIN: Final = Style()
DIM: Final = Style(dim=True)
BOLD: Final = Style(bold=True)
GREEN: Final = Style(color="green")
RED: Final = Style(color="red")
CYAN: Final = Style(color="cyan")
BLUE: Final = Style(color="blue")
MAGENTA: Final = Style(color="magenta")
YELLOW: Final = Style(color="yellow")
ALARM: Final = Style(color="red", bold=True)
HIDDEN: Final = Style(color="red", reverse=True, bold=True)  # the number of a hidden character
FOCUS: Final = Style(reverse=True)
FRAME: Final = Style(color="yellow", bold=True)  # of what is decided by itself
HEADING: Final = Style(color="cyan", bold=True)
BUTTON_ALLOW: Final = Style(color="green", bold=True, reverse=True)
BUTTON_DENY: Final = Style(color="red", bold=True)
