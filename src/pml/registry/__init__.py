"""Where capabilities come from: the bundled catalog, a registry client and its cache, a registry server."""
