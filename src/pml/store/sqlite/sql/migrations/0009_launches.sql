-- What a person let the sessions above one answer for it, and whether it launches agents unasked. Sessions of before
-- were launched without a person's yes: nobody above them answers anything.

ALTER TABLE sessions ADD COLUMN parent_may TEXT NOT NULL DEFAULT 'nothing'
  CHECK (parent_may IN ('nothing', 'listed', 'unlisted', 'all'));
ALTER TABLE sessions ADD COLUMN launches_unasked INTEGER NOT NULL DEFAULT 0 CHECK (launches_unasked IN (0, 1));
