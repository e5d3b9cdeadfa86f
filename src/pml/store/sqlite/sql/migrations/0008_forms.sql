-- A token whose client shows forms to a person; what a form answers over HTTP proves nothing without it.

ALTER TABLE tokens ADD COLUMN forms INTEGER NOT NULL DEFAULT 0 CHECK (forms IN (0, 1));
