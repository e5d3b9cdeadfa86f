"""`python -m pml` is `pml`."""

from pml.cli.main import entry

entry()
