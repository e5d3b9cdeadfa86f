-- What a capability needs are fields of its reason, no longer JSON within the text of an entry.

UPDATE approvals
   SET rule = json_patch(json_remove(rule, '$.entry'), json_extract(rule, '$.entry'))
 WHERE rule IS NOT NULL AND json_extract(rule, '$.verdict') = 'needs';
