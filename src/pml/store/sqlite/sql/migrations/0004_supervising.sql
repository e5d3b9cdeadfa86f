-- What a hub keeps: what sessions may do, who may speak for them, the agents that were launched, and answers given.

ALTER TABLE sessions ADD COLUMN role  TEXT    NOT NULL DEFAULT 'session' CHECK (role IN ('person', 'session', 'child'));
ALTER TABLE sessions ADD COLUMN tools TEXT    CHECK (json_type(tools) = 'array');  -- NULL: whatever the rules let
ALTER TABLE sessions ADD COLUMN waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1));
ALTER TABLE sessions ADD COLUMN ttl_s INTEGER CHECK (ttl_s > 0);
CREATE INDEX sessions_by_age ON sessions (started_at, id);
CREATE INDEX sessions_of_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;

-- The secret itself is stored nowhere.
CREATE TABLE tokens (
  id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
  role       TEXT    NOT NULL CHECK (role IN ('person', 'session', 'child')),
  name       TEXT    NOT NULL,
  hash       TEXT    NOT NULL CHECK (hash <> ''),
  session_id TEXT    CHECK (session_id <> ''),
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  CHECK (role <> 'person' OR session_id IS NULL)
) STRICT;
CREATE INDEX tokens_of_session ON tokens (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE runs (
  session_id TEXT    NOT NULL PRIMARY KEY,
  ordered    TEXT    NOT NULL CHECK (json_type(ordered) = 'object'),
  owner      TEXT    NOT NULL CHECK (owner <> ''),
  state      TEXT    NOT NULL CHECK (state IN ('starting', 'running', 'done', 'failed', 'stopped')),
  config     TEXT    CHECK (config <> ''),
  turns      INTEGER NOT NULL CHECK (turns >= 0),
  cost_usd   REAL    NOT NULL CHECK (cost_usd >= 0),
  result     TEXT,
  exit_code  INTEGER,
  told_seq   INTEGER NOT NULL CHECK (told_seq >= 0),
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,
  CHECK ((ended_at IS NULL) = (state IN ('starting', 'running')))
) STRICT;
CREATE INDEX runs_live ON runs (started_at, session_id) WHERE ended_at IS NULL;
CREATE INDEX runs_left_over ON runs (started_at, session_id) WHERE ended_at IS NOT NULL AND config IS NOT NULL;

-- AUTOINCREMENT: the audit log names messages by their place, so no place is given twice.
CREATE TABLE messages (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT    NOT NULL,
  kind       TEXT    NOT NULL CHECK (kind IN ('text', 'tool', 'result', 'error')),
  text       TEXT    NOT NULL,
  at         INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_of_session ON messages (session_id, seq);

CREATE TABLE receipts (
  principal TEXT    NOT NULL,
  key       TEXT    NOT NULL,
  request   TEXT    NOT NULL,
  body      BLOB,
  status    INTEGER NOT NULL,
  made_at   INTEGER NOT NULL,
  PRIMARY KEY (principal, key)
) STRICT;
