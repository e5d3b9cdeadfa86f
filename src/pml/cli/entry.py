"""The `pml` script. A client that starts `pml stdio` waits for its first answer, so that command is run at
once, without what reads every other command line.
"""

import io
import sys
from typing import Any, cast


def entry() -> None:
    """Run the command line of this process and exit with its code."""
    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show must not end a command
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="backslashreplace")
    words = sys.argv[1:]
    if words == ["stdio"]:
        from pml.cli.stdio import serve

        sys.exit(serve(None))
    from pml.cli.main import main

    sys.exit(main(words))
