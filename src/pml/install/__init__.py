"""Installing MCP servers and proving what is installed."""
