"""The hub: where sessions meet, over HTTP on this machine. Each module serves one of its paths."""
