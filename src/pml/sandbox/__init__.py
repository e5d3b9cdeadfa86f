"""Sandboxes for code that calls tools: TypeScript in Deno, Python in Monty."""
