-- A question may be about a login: the check of the subject knows it. SQLite changes a check only by a new table.

CREATE TABLE approvals_anew (
  id               TEXT    NOT NULL PRIMARY KEY,
  session_id       TEXT    NOT NULL,
  subject          TEXT    NOT NULL CHECK (subject IN ('tool_call', 'dependency_install', 'api_key_required',
                                                       'integrity_changed', 'tool_changed', 'workspace_trust',
                                                       'login_required')),
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
  cwd              TEXT,
  CHECK (status = 'pending' OR resolved_at IS NOT NULL),
  CHECK (status NOT IN ('allowed', 'executing', 'completed', 'failed', 'unknown', 'denied') OR decided_by IS NOT NULL),
  CHECK ((ended_at IS NULL) = (status IN ('pending', 'allowed', 'executing')))
) STRICT;

INSERT INTO approvals_anew
SELECT id, session_id, subject, tool_name, tool_input, tool_use_id, digest, definition, artefact, rule, deciders,
       ttl_s, created_at, expires_at, owner, run_id, status, decided_by, scope, response_message, updated_input,
       reason, abandoned_at, resolved_at, ended_at, version, cwd
  FROM approvals;
DROP TABLE approvals;
ALTER TABLE approvals_anew RENAME TO approvals;

CREATE UNIQUE INDEX approvals_one_question
  ON approvals (session_id, tool_use_id, subject, digest, coalesce(run_id, ''))
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
CREATE INDEX approvals_of_run ON approvals (run_id, created_at, id) WHERE run_id IS NOT NULL;
