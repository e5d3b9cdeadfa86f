"""Differences between operating systems: file locks, private files, processes. Decides nothing."""
