"""Use cases: functions over the ports of `core.ports`. Knows no database, file or protocol."""
