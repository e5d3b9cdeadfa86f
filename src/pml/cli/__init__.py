"""The `pml` command: one file per command, heavy imports late."""
