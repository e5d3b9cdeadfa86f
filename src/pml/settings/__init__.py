"""Configuration files on disk: reading, noticing changes, writing without losing anything."""
