"""Logging in to remote servers by OAuth 2.1."""
