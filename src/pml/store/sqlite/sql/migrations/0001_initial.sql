-- Instants are whole microseconds since 1970 (UTC). JSON columns hold the canonical spelling.

CREATE TABLE approvals (
  id               TEXT    NOT NULL PRIMARY KEY,
  session_id       TEXT    NOT NULL,
  subject          TEXT    NOT NULL CHECK (subject IN ('tool_call', 'dependency_install', 'api_key_required',
                                                       'integrity_changed', 'tool_changed', 'workspace_trust')),
  tool_name        TEXT    NOT NULL,
  tool_input       TEXT    NOT NULL,
  tool_use_id      TEXT    NOT NULL,
  digest           TEXT    NOT NULL,
  definition       TEXT,
  artefact         TEXT,
  rule             TEXT,
  deciders         TEXT    NOT NULL,
  ttl_s            INTEGER NOT NULL CHECK (ttl_s > 0),
  created_at       INTEGER NOT NULL,
  expires_at       INTEGER NOT NULL,
  owner            TEXT    NOT NULL,
  run_id           TEXT,
  status           TEXT    NOT NULL CHECK (status IN ('pending', 'allowed', 'executing', 'completed', 'failed',
                                                      'unknown', 'denied', 'expired', 'cancelled')),
  decided_by       TEXT,
  scope            TEXT    CHECK (scope IN ('once', 'session', 'always')),
  response_message TEXT,
  updated_input    TEXT,
  reason           TEXT,
  abandoned_at     INTEGER,
  resolved_at      INTEGER,
  ended_at         INTEGER,
  version          INTEGER NOT NULL CHECK (version > 0),
  CHECK (status = 'pending' OR resolved_at IS NOT NULL),
  CHECK (status NOT IN ('allowed', 'executing', 'completed', 'failed', 'unknown', 'denied') OR decided_by IS NOT NULL),
  CHECK ((ended_at IS NULL) = (status IN ('pending', 'allowed', 'executing')))
) STRICT;

-- The same question asked again attaches to the record that exists.
CREATE UNIQUE INDEX approvals_one_question ON approvals (session_id, tool_use_id, subject, digest)
  WHERE status IN ('pending', 'allowed');
CREATE INDEX approvals_by_age ON approvals (created_at, id);
CREATE INDEX approvals_pending_by_age ON approvals (created_at, id) WHERE status = 'pending';
CREATE INDEX approvals_pending_of_session ON approvals (session_id, created_at, id) WHERE status = 'pending';
CREATE INDEX approvals_denied ON approvals (session_id, digest) WHERE status = 'denied';
CREATE INDEX approvals_allowed ON approvals (session_id, digest) WHERE status = 'allowed';
CREATE INDEX approvals_due ON approvals (expires_at) WHERE status IN ('pending', 'allowed');
CREATE INDEX approvals_abandoned ON approvals (abandoned_at)
  WHERE status IN ('pending', 'allowed') AND abandoned_at IS NOT NULL;
CREATE INDEX approvals_executing ON approvals (owner) WHERE status = 'executing';
CREATE INDEX approvals_ended ON approvals (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE sessions (
  id              TEXT    NOT NULL PRIMARY KEY,
  name            TEXT    NOT NULL,
  principal       TEXT    NOT NULL,
  workspace       TEXT    NOT NULL,
  parent_id       TEXT,
  pid             INTEGER,
  process_started REAL,
  is_agent        INTEGER NOT NULL CHECK (is_agent IN (0, 1)),
  started_at      INTEGER NOT NULL,
  ended_at        INTEGER,
  CHECK ((pid IS NULL) = (process_started IS NULL))
) STRICT;
CREATE INDEX sessions_live ON sessions (started_at, id) WHERE ended_at IS NULL;

CREATE TABLE grants (
  id          TEXT    NOT NULL PRIMARY KEY,
  session_id  TEXT    NOT NULL,
  tool        TEXT    NOT NULL,
  digest      TEXT,
  definition  TEXT,
  artefact    TEXT,
  approval_id TEXT,
  decider     TEXT    NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX grants_of_tool ON grants (session_id, tool);

CREATE TABLE workflows (
  id           TEXT    NOT NULL PRIMARY KEY,
  approval_id  TEXT    NOT NULL,
  principal    TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  continued_at INTEGER
) STRICT;
CREATE INDEX workflows_of_approval ON workflows (approval_id);

CREATE TABLE trusts (
  path       TEXT    NOT NULL,
  digest     TEXT    NOT NULL,
  decider    TEXT    NOT NULL,
  trusted_at INTEGER NOT NULL,
  PRIMARY KEY (path, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE intents (
  id          TEXT    NOT NULL PRIMARY KEY,
  workspace   TEXT    NOT NULL,
  effect      TEXT    NOT NULL CHECK (effect IN ('deny', 'allow', 'ask')),
  entry       TEXT    NOT NULL,
  approval_id TEXT    NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE audit (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  chain       TEXT    NOT NULL,
  n           INTEGER NOT NULL CHECK (n > 0),
  at          INTEGER NOT NULL,
  kind        TEXT    NOT NULL,
  approval_id TEXT,
  session_id  TEXT,
  tool        TEXT,
  by_kind     TEXT,
  by_id       TEXT,
  by_channel  TEXT,
  detail      TEXT    NOT NULL,
  prev        TEXT    NOT NULL,
  hash        TEXT    NOT NULL,
  UNIQUE (chain, n)
) STRICT;
CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_of_approval ON audit (approval_id) WHERE approval_id IS NOT NULL;

-- Append-only: PML itself never edits or removes an entry; the chain shows when something else did.
CREATE TRIGGER audit_is_not_edited BEFORE UPDATE ON audit
  BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit
  BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
