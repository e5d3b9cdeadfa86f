-- name: insert_approval
INSERT INTO approvals (id, session_id, subject, tool_name, tool_input, tool_use_id, digest, definition, artefact,
  rule, deciders, ttl_s, created_at, expires_at, owner, run_id, status, decided_by, scope, response_message,
  updated_input, reason, abandoned_at, resolved_at, ended_at, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_approval
UPDATE approvals SET expires_at = ?, owner = ?, status = ?, decided_by = ?, scope = ?, response_message = ?,
  updated_input = ?, reason = ?, abandoned_at = ?, resolved_at = ?, ended_at = ?, version = ?
WHERE id = ? AND version = ?

-- name: approval
SELECT * FROM approvals WHERE id = ?

-- name: same_question
SELECT * FROM approvals
WHERE session_id = ? AND tool_use_id = ? AND subject = ? AND digest = ? AND status IN ('pending', 'allowed')

-- name: count_pending
SELECT count(*) FROM approvals WHERE session_id = ? AND status = 'pending'

-- name: find_approvals
SELECT * FROM approvals WHERE id >= ? AND id < ? ORDER BY id LIMIT ?

-- name: due_approvals
SELECT * FROM approvals WHERE status IN ('pending', 'allowed') AND expires_at <= ?
UNION
SELECT * FROM approvals WHERE status IN ('pending', 'allowed') AND abandoned_at IS NOT NULL AND abandoned_at <= ?
ORDER BY created_at, id LIMIT ?

-- name: held_approvals
SELECT id, session_id, status, owner, abandoned_at FROM approvals WHERE status = 'executing'
UNION ALL
SELECT id, session_id, status, owner, abandoned_at FROM approvals WHERE status IN ('pending', 'allowed')
  AND NOT EXISTS (SELECT 1 FROM workflows WHERE workflows.approval_id = approvals.id)

-- name: ended_before
SELECT 1 FROM approvals WHERE ended_at IS NOT NULL AND ended_at < ? LIMIT 1

-- name: delete_ended_approvals
DELETE FROM approvals WHERE ended_at IS NOT NULL AND ended_at < ?

-- name: delete_workflows_of_no_approval
DELETE FROM workflows WHERE NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.id = workflows.approval_id)

-- name: insert_session
INSERT OR REPLACE INTO sessions (id, name, principal, workspace, parent_id, pid, process_started, is_agent, started_at, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: session
SELECT * FROM sessions WHERE id = ?

-- name: live_sessions
SELECT * FROM sessions WHERE ended_at IS NULL ORDER BY started_at, id

-- name: end_session
UPDATE sessions SET ended_at = ? WHERE id = ? AND ended_at IS NULL

-- name: delete_grants_of_session
DELETE FROM grants WHERE session_id = ?

-- name: insert_grant
INSERT INTO grants (id, session_id, tool, digest, definition, artefact, approval_id, decider, created_at)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = ?2 AND ended_at IS NOT NULL)

-- name: grants_of
SELECT * FROM grants WHERE session_id = ? AND tool = ? ORDER BY created_at, id

-- name: all_grants
SELECT * FROM grants ORDER BY created_at, id

-- name: delete_grant
DELETE FROM grants WHERE id = ? RETURNING session_id, tool

-- name: insert_workflow
INSERT INTO workflows (id, approval_id, principal, created_at, continued_at, call) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: workflow
SELECT * FROM workflows WHERE id = ?

-- name: continue_workflow
UPDATE workflows SET continued_at = ? WHERE id = ? AND continued_at IS NULL

-- name: insert_trust
INSERT INTO trusts (path, digest, decider, trusted_at) VALUES (?, ?, ?, ?)
ON CONFLICT (path, digest) DO UPDATE SET decider = excluded.decider, trusted_at = excluded.trusted_at

-- name: trust_holds
SELECT 1 FROM trusts WHERE path = ? AND digest = ?

-- name: delete_trusts
DELETE FROM trusts WHERE path = ?

-- name: delete_trust
DELETE FROM trusts WHERE path = ? AND digest = ?

-- name: delete_other_trusts
DELETE FROM trusts WHERE path = ? AND digest <> ?

-- name: insert_intent
INSERT INTO intents (id, workspace, effect, entry, approval_id, created_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: open_intents
SELECT * FROM intents ORDER BY created_at, id

-- name: delete_intent
DELETE FROM intents WHERE id = ? RETURNING workspace, effect, entry, approval_id

-- name: insert_manifest
INSERT OR REPLACE INTO manifests (server, launch, content, kept_at)
VALUES (?, ?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- name: delete_old_manifests
DELETE FROM manifests
WHERE rowid IN (SELECT rowid FROM manifests ORDER BY kept_at DESC, rowid DESC LIMIT -1 OFFSET ?)

-- name: manifest
SELECT content FROM manifests WHERE server = ? AND launch = ?

-- name: insert_pin
INSERT OR REPLACE INTO pins (server, launch, action, definition, digest, pinned_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: pin
SELECT * FROM pins WHERE server = ? AND launch = ? AND action = ?

-- name: pin_digest
SELECT digest FROM pins WHERE server = ? AND launch = ? AND action = ?

-- name: insert_audit
INSERT INTO audit (chain, n, at, kind, approval_id, session_id, tool, by_kind, by_id, by_channel, detail, prev, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: chain_end
SELECT n, hash FROM audit WHERE chain = ? ORDER BY n DESC LIMIT 1

-- name: chain_hash
SELECT hash FROM audit WHERE chain = ? AND n = ?

-- name: chain_links
SELECT * FROM audit WHERE (chain, n) > (?, ?) ORDER BY chain, n LIMIT ?

-- name: changed_after
SELECT seq, approval_id FROM audit WHERE seq > ? ORDER BY seq

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM audit
