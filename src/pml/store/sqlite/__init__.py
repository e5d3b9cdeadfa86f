"""The store in SQLite, and its schema and queries in `sql/`."""
