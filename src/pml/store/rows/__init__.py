"""Rows of the store: which columns hold a struct, and in which form."""
