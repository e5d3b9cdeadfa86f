"""Sources of capabilities: the bundled catalog, a registry client and its cache, a registry server."""
