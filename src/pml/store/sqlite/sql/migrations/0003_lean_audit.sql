-- Every allowed call is one entry, so an entry touches as few pages as can be: no counter beside the row
-- number, which only grows in a log that nothing is removed from, and no index by time, which rows nearly are in.

CREATE TABLE lean_audit (
  seq         INTEGER PRIMARY KEY,
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
INSERT INTO lean_audit SELECT * FROM audit;
DROP TABLE audit;
ALTER TABLE lean_audit RENAME TO audit;
CREATE INDEX audit_of_approval ON audit (approval_id) WHERE approval_id IS NOT NULL;

CREATE TRIGGER audit_is_not_edited BEFORE UPDATE ON audit
  BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit
  BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
