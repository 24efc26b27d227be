-- What teams keep lies in records; these are for those who look with SQL. Times are RFC 3339.
CREATE VIEW chat_delegations AS
SELECT id,
       json_extract(doc, '$.agent')        AS agent_id,
       json_extract(doc, '$.project')      AS project_id,
       json_extract(doc, '$.target')       AS target_agent_id,
       json_extract(doc, '$.purpose')      AS purpose,
       json_extract(doc, '$.context')      AS context,
       state                               AS status,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
       json_extract(doc, '$.processed_at') AS processed_at,
       json_extract(doc, '$.result')       AS result,
       tenant
FROM records
WHERE kind = 'delegation';

-- Without the hashes of their tokens.
CREATE VIEW agent_sessions AS
SELECT id,
       json_extract(doc, '$.place.agent')   AS agent_id,
       json_extract(doc, '$.place.project') AS project_id,
       json_extract(doc, '$.purpose')       AS purpose,
       json_extract(doc, '$.expires_at')    AS expires_at,
       json_extract(doc, '$.seen_at')       AS seen_at,
       tenant
FROM records
WHERE kind = 'agent_session';
