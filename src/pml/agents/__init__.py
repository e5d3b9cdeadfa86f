"""Launching and hooking Claude Code: what of PML knows that client."""
