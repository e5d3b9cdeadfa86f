"""Adapters of the `Store` port, and what keeps several processes on one store honest."""
