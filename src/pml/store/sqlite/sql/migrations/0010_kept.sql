-- The content of trusted files: their denies and asks stay in force when the file is emptied or gone.

ALTER TABLE trusts ADD COLUMN content TEXT;

CREATE TABLE kept_contents (
  path    TEXT NOT NULL PRIMARY KEY,
  digest  TEXT NOT NULL,
  content TEXT NOT NULL
) STRICT, WITHOUT ROWID;
