-- name: insert_approval
INSERT INTO approvals ({approvals.columns}) VALUES ({approvals.marks})

-- name: approval
SELECT {approvals.columns} FROM approvals WHERE id = ?

-- name: same_question
SELECT {approvals.columns} FROM approvals
WHERE session_id = ? AND tool_use_id = ? AND subject = ? AND digest = ? AND coalesce(run_id, '') = coalesce(?, '')
  AND status IN ('pending', 'allowed')

-- name: count_pending
SELECT count(*), coalesce(sum(octet_length(tool_input)), 0) FROM approvals WHERE session_id = ? AND status = 'pending'

-- name: count_waiting
SELECT count(*) FROM approvals WHERE status = 'pending'

-- name: find_approvals
SELECT {approvals.columns} FROM approvals WHERE id >= ? AND id < ? ORDER BY id LIMIT ?

-- name: due_approvals
SELECT {approvals.columns} FROM approvals WHERE status IN ('pending', 'allowed') AND expires_at <= ?
UNION
SELECT {approvals.columns} FROM approvals
WHERE status IN ('pending', 'allowed') AND abandoned_at IS NOT NULL AND abandoned_at <= ?
ORDER BY created_at, id LIMIT ?

-- name: held_approvals
SELECT {held.columns} FROM approvals WHERE status = 'executing'
UNION ALL
SELECT {held.columns} FROM approvals WHERE status IN ('pending', 'allowed')
  AND NOT EXISTS (SELECT 1 FROM workflows WHERE workflows.approval_id = approvals.id)

-- name: ended_before
SELECT 1 FROM approvals WHERE ended_at IS NOT NULL AND ended_at < ? LIMIT 1

-- name: delete_ended_approvals
DELETE FROM approvals WHERE ended_at IS NOT NULL AND ended_at < ?

-- name: delete_workflows_of_no_approval
DELETE FROM workflows WHERE NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.id = workflows.approval_id)

-- name: insert_session
INSERT OR REPLACE INTO sessions ({sessions.columns}) VALUES ({sessions.marks})

-- name: session
SELECT {sessions.columns} FROM sessions WHERE id = ?

-- name: live_sessions
SELECT {sessions.columns} FROM sessions WHERE ended_at IS NULL ORDER BY started_at, id

-- name: end_session
UPDATE sessions SET ended_at = ? WHERE id = ? AND ended_at IS NULL

-- name: latest_sessions
SELECT {sessions.columns} FROM sessions ORDER BY started_at DESC, id DESC LIMIT ?

-- name: sessions_before
SELECT {sessions.columns} FROM sessions WHERE (started_at, id) < (?, ?) ORDER BY started_at DESC, id DESC LIMIT ?

-- name: descendants
-- CROSS JOIN: from the few to their rows, never through all sessions
WITH RECURSIVE beneath (session) AS (
  SELECT id FROM sessions WHERE parent_id = ?1
  UNION
  SELECT sessions.id FROM beneath JOIN sessions ON sessions.parent_id = beneath.session
)
SELECT {sessions.columns} FROM beneath CROSS JOIN sessions ON sessions.id = beneath.session
WHERE sessions.id <> ?1 ORDER BY sessions.started_at, sessions.id

-- name: set_process
UPDATE sessions SET pid = ?, process_started = ? WHERE id = ?

-- name: delete_old_sessions
WITH RECURSIVE kept (id, parent_id) AS (
  SELECT id, parent_id FROM sessions
  WHERE ended_at IS NULL OR ended_at >= ?
    OR id IN (SELECT session_id FROM approvals)
    OR id IN (SELECT session_id FROM runs WHERE ended_at IS NULL OR config IS NOT NULL)
  UNION
  SELECT sessions.id, sessions.parent_id FROM kept JOIN sessions ON sessions.id = kept.parent_id
)
DELETE FROM sessions WHERE id NOT IN (SELECT id FROM kept) RETURNING id

-- name: delete_grants_of_sessions
DELETE FROM grants WHERE session_id IN (SELECT value FROM json_each(?))

-- name: delete_tokens_of_sessions
DELETE FROM tokens WHERE session_id IN (SELECT value FROM json_each(?))

-- name: delete_runs_of_sessions
DELETE FROM runs WHERE session_id IN (SELECT value FROM json_each(?))

-- name: delete_messages_of_sessions
DELETE FROM messages WHERE session_id IN (SELECT value FROM json_each(?))

-- name: delete_grants_of_session
DELETE FROM grants WHERE session_id = ?

-- name: insert_grant
INSERT INTO grants ({grants.columns}) SELECT {grants.marks}
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = :session_id AND ended_at IS NOT NULL)

-- name: grants_of
SELECT {grants.columns} FROM grants WHERE session_id = ? AND tool = ? ORDER BY created_at, id

-- name: all_grants
SELECT {grants.columns} FROM grants ORDER BY created_at, id

-- name: delete_grant
DELETE FROM grants WHERE id = ? RETURNING session_id, tool

-- name: insert_workflow
INSERT INTO workflows ({workflows.columns}) VALUES ({workflows.marks})
ON CONFLICT (id) DO NOTHING

-- name: workflow
SELECT {workflows.columns} FROM workflows WHERE id = ?

-- name: continue_workflow
UPDATE workflows SET continued_at = ? WHERE id = ? AND continued_at IS NULL

-- name: insert_trust
INSERT INTO trusts ({trusts.columns}) VALUES ({trusts.marks})
ON CONFLICT (path, digest) DO UPDATE
SET decider = excluded.decider, trusted_at = excluded.trusted_at, content = excluded.content

-- name: trust_holds
SELECT 1 FROM trusts WHERE path = ? AND digest = ?

-- name: trust_standing
SELECT EXISTS (SELECT 1 FROM trusts WHERE path = ?1 AND digest = ?2),
       (SELECT digest FROM kept_contents WHERE path = ?1)

-- name: trusts_of
SELECT {contents.columns} FROM trusts WHERE path = ? ORDER BY digest

-- name: keep_content
INSERT INTO kept_contents (path, digest, content) VALUES (?, ?, ?)
ON CONFLICT (path) DO UPDATE SET digest = excluded.digest, content = excluded.content

-- name: kept_content
SELECT {contents.columns} FROM kept_contents WHERE path = ?

-- name: delete_kept_content
DELETE FROM kept_contents WHERE path = ?

-- name: delete_trusts
DELETE FROM trusts WHERE path = ?

-- name: delete_trust
DELETE FROM trusts WHERE path = ? AND digest = ?

-- name: insert_intent
INSERT INTO intents ({intents.columns}) VALUES ({intents.marks})

-- name: open_intents
SELECT {intents.columns} FROM intents ORDER BY created_at, id

-- name: delete_intent
DELETE FROM intents WHERE id = ? RETURNING {intents.columns}

-- name: mark_rule
INSERT OR REPLACE INTO model_rules (workspace, entry, model) VALUES (?, ?, ?)

-- name: unmark_rule
DELETE FROM model_rules WHERE workspace = ? AND entry = ?

-- name: model_rules
SELECT entry, model FROM model_rules WHERE workspace = ?

-- name: insert_manifest
INSERT OR REPLACE INTO manifests (server, launch, content, kept_at)
VALUES (?, ?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- name: delete_old_manifests
DELETE FROM manifests
WHERE rowid IN (SELECT rowid FROM manifests ORDER BY kept_at DESC, rowid DESC LIMIT -1 OFFSET ?)

-- name: manifest
SELECT content FROM manifests WHERE server = ? AND launch = ?

-- name: insert_pin
INSERT OR REPLACE INTO pins ({pins.columns}) VALUES ({pins.marks})

-- name: pin
SELECT {pins.columns} FROM pins WHERE server = ? AND launch = ? AND action = ?

-- name: pin_digest
SELECT digest FROM pins WHERE server = ? AND launch = ? AND action = ?

-- name: insert_token
INSERT INTO tokens ({tokens.columns}) VALUES ({tokens.marks})

-- name: token
SELECT {tokens.columns} FROM tokens WHERE id = ?

-- name: all_tokens
SELECT {tokens.columns} FROM tokens ORDER BY created_at, id

-- name: revoke_token
UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL RETURNING id, session_id

-- name: revoke_tokens_of_session
UPDATE tokens SET revoked_at = ? WHERE session_id = ? AND revoked_at IS NULL RETURNING id, session_id

-- name: delete_old_tokens
DELETE FROM tokens WHERE session_id IS NULL AND min(ifnull(revoked_at, expires_at), ifnull(expires_at, revoked_at)) < ?

-- name: insert_run
INSERT INTO runs ({runs.columns}) VALUES ({runs.marks})

-- name: run
SELECT {runs.columns} FROM runs WHERE session_id = ?

-- name: live_runs
SELECT {runs.columns} FROM runs WHERE ended_at IS NULL ORDER BY started_at, session_id

-- name: leftover_runs
SELECT {runs.columns} FROM runs WHERE ended_at IS NOT NULL AND config IS NOT NULL ORDER BY started_at, session_id

-- name: move_run
UPDATE runs SET state = ?, exit_code = ?, result = ?, ended_at = ? WHERE session_id = ?

-- name: count_run
UPDATE runs SET turns = ?, cost_usd = ? WHERE session_id = ?

-- name: tell_run
UPDATE runs SET told_seq = ?1 WHERE session_id = ?2 AND told_seq < ?1

-- name: forget_config
UPDATE runs SET config = NULL WHERE session_id = ?

-- name: insert_message
INSERT INTO messages (session_id, kind, text, at) VALUES (?, ?, ?, ?) RETURNING seq

-- name: messages_after
SELECT {messages.columns} FROM messages WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: insert_receipt
INSERT INTO receipts ({receipts.columns}) VALUES ({receipts.marks})
ON CONFLICT (principal, key) DO NOTHING

-- name: receipt
SELECT {receipts.columns} FROM receipts WHERE principal = ? AND key = ?

-- name: close_receipt
UPDATE receipts SET body = ?, status = ? WHERE principal = ? AND key = ? AND request = ? AND body IS NULL

-- name: delete_old_receipts
DELETE FROM receipts WHERE made_at < ?

-- name: insert_code_run
INSERT INTO code_runs ({code_runs.columns}) VALUES ({code_runs.marks})
ON CONFLICT (id) DO NOTHING

-- name: code_run_exists
SELECT 1 FROM code_runs WHERE id = ?

-- name: code_run
SELECT {code_runs.columns} FROM code_runs WHERE id = ?

-- name: code_run_owner
SELECT owner FROM code_runs WHERE id = ?

-- name: take_code_run
UPDATE code_runs SET owner = ?2, taken = taken + 1
WHERE id = ?1 AND (owner IS NULL OR owner IN (SELECT value FROM json_each(?3)))

-- name: leave_code_run
UPDATE code_runs SET owner = NULL WHERE id = ?

-- name: code_runs_begun_with
SELECT {code_runs.columns} FROM code_runs WHERE root = id AND principal = ? AND tool = ?
ORDER BY started_at DESC, id DESC

-- name: code_runs_begun_in
SELECT id FROM code_runs WHERE root = id AND session_id = ? ORDER BY id

-- name: owners_of_code_runs
SELECT DISTINCT owner FROM code_runs WHERE owner IS NOT NULL ORDER BY owner

-- name: over_code_runs
SELECT id FROM code_runs WHERE root = id AND started_at < ?1
  AND NOT EXISTS (SELECT 1 FROM code_runs AS within JOIN code_steps ON code_steps.run_id = within.id
    WHERE within.root = code_runs.id AND (code_steps.at_ms * 1000 > ?1
      OR (code_steps.place IS NULL AND code_runs.started_at > ?3)))
  AND (owner IS NULL OR owner IN (SELECT value FROM json_each(?2)))
  AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.run_id = code_runs.id
    AND (approvals.status IN ('pending', 'allowed', 'executing')
      OR (approvals.status <> 'cancelled' AND approvals.expires_at > ?1)))

-- name: delete_code_runs
DELETE FROM code_runs WHERE id IN (SELECT value FROM json_each(?))

-- name: delete_code_run
-- '/' is what follows '.': the range is the ids that begin with the id and a dot
DELETE FROM code_runs WHERE id = ?1 OR (id > ?1 || '.' AND id < ?1 || '/')

-- name: insert_code_dump
INSERT INTO code_dumps (run_id, dumped, dump) VALUES (?, ?, ?)

-- name: code_dump
SELECT dumped, dump FROM code_dumps WHERE run_id = ?

-- name: delete_code_dump
DELETE FROM code_dumps WHERE run_id = ?

-- name: begin_code_step
INSERT INTO code_steps (run_id, number, what, digest) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, number) DO NOTHING

-- name: take_code_step_back
DELETE FROM code_steps WHERE run_id = ? AND number = ? AND place IS NULL

-- name: finish_code_step
INSERT INTO code_steps ({code_steps.columns}) VALUES ({code_steps.marks})
ON CONFLICT (run_id, number) DO UPDATE
SET place = excluded.place, at_ms = excluded.at_ms, fault = excluded.fault, value = excluded.value
WHERE place IS NULL AND what = excluded.what AND digest = excluded.digest

-- name: code_steps
SELECT {code_steps.columns} FROM code_steps WHERE run_id = ? ORDER BY number

-- name: code_step
SELECT {code_steps.columns} FROM code_steps WHERE run_id = ? AND number = ?

-- name: empty_wal
PRAGMA wal_checkpoint(TRUNCATE)

-- name: insert_audit
INSERT INTO audit (chain, n, prev, hash, {entries.columns}) VALUES (?, ?, ?, ?, {entries.marks})

-- name: chain_end
SELECT n, hash FROM audit WHERE chain = ? ORDER BY n DESC LIMIT 1

-- name: chain_hash
SELECT hash FROM audit WHERE chain = ? AND n = ?

-- name: chain_links
SELECT {links.columns} FROM audit WHERE (chain, n) > (?, ?) ORDER BY chain, n LIMIT ?

-- name: changed_after
SELECT seq, approval_id FROM audit WHERE seq > ? ORDER BY seq

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM audit
