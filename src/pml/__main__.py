"""`python -m pml` is `pml`."""

from pml.cli.entry import entry

entry()
