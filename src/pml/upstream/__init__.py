"""MCP servers as supervised processes, and JSON-RPC to them."""
