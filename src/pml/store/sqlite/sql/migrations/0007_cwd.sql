-- Where a call would be made, if not in its session's workspace: a command is shown with it.

ALTER TABLE approvals ADD COLUMN cwd TEXT;
