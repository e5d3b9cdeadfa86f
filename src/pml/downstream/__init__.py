"""MCP to agents: JSON-RPC over stdio, both protocol eras, and the three ways of asking."""
