"""PML, the Permissioned MCP Loader: stands between AI agents and the tools they call."""

__version__ = "0.1.0"
