-- What a gateway serves: the calls that workflows continue, what servers offered, and what their tools are pinned to.

ALTER TABLE workflows ADD COLUMN call TEXT;

-- A cache: what is lost here is asked of the server again.
CREATE TABLE manifests (
  server  TEXT    NOT NULL,
  launch  TEXT    NOT NULL,
  kept_at INTEGER NOT NULL,
  content TEXT    NOT NULL,
  PRIMARY KEY (server, launch)
) STRICT;

CREATE TABLE pins (
  server     TEXT    NOT NULL,
  launch     TEXT    NOT NULL,
  action     TEXT    NOT NULL,
  definition TEXT    NOT NULL,
  digest     TEXT    NOT NULL,
  pinned_at  INTEGER NOT NULL,
  PRIMARY KEY (server, launch, action)
) STRICT;
