-- Code that runs and can be paused: the runs, the requests that their code made, and what came of each.

ALTER TABLE workflows ADD COLUMN run_id TEXT;

-- What one run asks is no answer to another: the same question is one of the same run.
DROP INDEX approvals_one_question;
CREATE UNIQUE INDEX approvals_one_question
  ON approvals (session_id, tool_use_id, subject, digest, coalesce(run_id, ''))
  WHERE status IN ('pending', 'allowed');
CREATE INDEX approvals_of_run ON approvals (run_id, created_at, id) WHERE run_id IS NOT NULL;

-- A run that code started goes with the run that a client started, its root; that one is its own root.
CREATE TABLE code_runs (
  id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
  root       TEXT    NOT NULL REFERENCES code_runs (id) ON DELETE CASCADE,
  principal  TEXT    NOT NULL,
  session_id TEXT    NOT NULL,
  tool       TEXT    NOT NULL,
  offered    INTEGER NOT NULL CHECK (offered IN (0, 1)),
  language   TEXT    NOT NULL CHECK (language IN ('typescript', 'python')),
  export     TEXT,
  artefact   TEXT,
  covered    TEXT    NOT NULL CHECK (json_type(covered) = 'array'),
  source     TEXT    NOT NULL,
  seed       BLOB    NOT NULL,
  started_at INTEGER NOT NULL,
  taken      INTEGER NOT NULL CHECK (taken >= 0),
  owner      TEXT    CHECK (owner <> ''),
  arguments  TEXT    NOT NULL CHECK (json_type(arguments) = 'object'),
  args       TEXT    NOT NULL CHECK (json_valid(args)),
  metadata   BLOB,
  code       TEXT    NOT NULL
) STRICT;
CREATE INDEX code_runs_of_root ON code_runs (root);
CREATE INDEX code_runs_begun ON code_runs (principal, tool, started_at, id) WHERE root = id;
CREATE INDEX code_runs_of_session ON code_runs (session_id, id) WHERE root = id;
CREATE INDEX code_runs_owned ON code_runs (owner) WHERE owner IS NOT NULL;

-- Beside its run: a run changes hands without its dump being written anew.
CREATE TABLE code_dumps (
  run_id TEXT    NOT NULL PRIMARY KEY REFERENCES code_runs (id) ON DELETE CASCADE,
  dumped INTEGER NOT NULL CHECK (dumped >= 0),
  dump   BLOB    NOT NULL
) STRICT;

-- Without a place a step is begun, with one it is finished.
CREATE TABLE code_steps (
  run_id TEXT    NOT NULL REFERENCES code_runs (id) ON DELETE CASCADE,
  number INTEGER NOT NULL CHECK (number >= 0),
  what   TEXT    NOT NULL,
  digest TEXT    NOT NULL,
  place  INTEGER CHECK (place >= 0),
  at_ms  INTEGER,
  fault  TEXT    CHECK (json_type(fault) = 'object'),
  value  BLOB,
  PRIMARY KEY (run_id, number),
  CHECK ((place IS NULL) = (at_ms IS NULL)),
  CHECK (place IS NOT NULL OR (fault IS NULL AND value IS NULL))
) STRICT;
CREATE UNIQUE INDEX code_steps_in_place ON code_steps (run_id, place) WHERE place IS NOT NULL;
