-- What a capability needs are fields of its reason, no longer JSON within the text of an entry.
-- An entry that cannot be read leaves a reason that lists nothing: it stays one of needs, and covers no tool.

UPDATE approvals
   SET rule = json_set(
         json_patch(
           json_remove(rule, '$.entry'),
           CASE WHEN json_valid(json_extract(rule, '$.entry')) THEN json_extract(rule, '$.entry') ELSE '{}' END
         ),
         '$.verdict', 'needs'
       )
 WHERE CASE WHEN json_valid(rule) THEN json_extract(rule, '$.verdict') = 'needs' END;
