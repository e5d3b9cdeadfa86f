"""Doubles for tests, shipped so that others can test against them: a store in memory."""
