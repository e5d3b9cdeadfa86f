"""The domain: pure and synchronous. No I/O, no clock, no randomness; they arrive as arguments."""
