-- A token for a login speaks for no session and always ends; CHECKs cannot be changed, so the table is made anew.

CREATE TABLE tokens_with_logins (
  id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
  role       TEXT    NOT NULL CHECK (role IN ('person', 'session', 'child', 'login')),
  name       TEXT    NOT NULL,
  hash       TEXT    NOT NULL CHECK (hash <> ''),
  session_id TEXT    CHECK (session_id <> ''),
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  CHECK (role IN ('session', 'child') OR session_id IS NULL),
  CHECK (role <> 'login' OR expires_at IS NOT NULL)
) STRICT;
INSERT INTO tokens_with_logins SELECT * FROM tokens;
DROP TABLE tokens;
ALTER TABLE tokens_with_logins RENAME TO tokens;
CREATE INDEX tokens_of_session ON tokens (session_id) WHERE session_id IS NOT NULL;
