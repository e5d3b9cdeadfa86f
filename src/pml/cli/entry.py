"""The `pml` script. A client that starts `pml stdio` waits for its first answer, so that command is run at
once, without what reads every other command line. Ctrl-C ends it without a traceback, also while it starts.
"""

import sys  # and no more here: what is imported before `entry` is not guarded

_FAILED, _INTERRUPTED = 1, 130  # as in `pml.cli.exits`, which may be what was being imported
_BLOCK = 2  # of a hook: any other code can let the tool run


def entry() -> None:
    """Run the command line of this process and exit with its code."""
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        print("pml: interrupted", file=sys.stderr)
        sys.exit(_BLOCK if sys.argv[1:2] == ["hook"] else _INTERRUPTED)


def _run(words: list[str]) -> None:
    import io
    from typing import Any, cast

    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show must not end a command
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="backslashreplace")
    if words == ["stdio"]:
        from pml.cli.commands.stdio import serve

        sys.exit(serve(None))
    from pml.cli.main import main

    sys.exit(_written(main(words)))


def _written(code: int) -> int:
    """Return the exit code after all is written; what cannot be is dropped, or Python would exit with 120."""
    import os

    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = code or _FAILED
    return code
