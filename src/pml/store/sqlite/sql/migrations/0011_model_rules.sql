-- An "always" that a model confirmed is marked as the model's for as long as its rule stands.

ALTER TABLE intents ADD COLUMN model TEXT;

CREATE TABLE model_rules (
  workspace TEXT NOT NULL,
  entry     TEXT NOT NULL,
  model     TEXT NOT NULL,
  PRIMARY KEY (workspace, entry)
) STRICT, WITHOUT ROWID;
