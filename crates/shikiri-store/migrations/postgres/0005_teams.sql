-- What teams keep lies in records; these are for those who look with SQL. Times are RFC 3339.
-- A text here cannot hold the character NUL, which a document may: it is shown as the one for
-- characters that cannot be shown.
CREATE VIEW chat_delegations AS
SELECT id,
       doc ->> 'agent'        AS agent_id,
       doc ->> 'project'      AS project_id,
       doc ->> 'target'       AS target_agent_id,
       doc ->> 'purpose'      AS purpose,
       doc ->> 'context'      AS context,
       state                  AS status,
       to_char(to_timestamp(created_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
       doc ->> 'processed_at' AS processed_at,
       doc ->> 'result'       AS result,
       tenant
FROM (
    SELECT id, tenant, state, created_at, replace(doc, '\u0000', '\ufffd')::json AS doc
    FROM records
    WHERE kind = 'delegation'
) AS delegations;

-- Without the hashes of their tokens.
CREATE VIEW agent_sessions AS
SELECT id,
       doc -> 'place' ->> 'agent'   AS agent_id,
       doc -> 'place' ->> 'project' AS project_id,
       doc ->> 'purpose'            AS purpose,
       doc ->> 'expires_at'         AS expires_at,
       doc ->> 'seen_at'            AS seen_at,
       tenant
FROM (
    SELECT id, tenant, doc::json AS doc
    FROM records
    WHERE kind = 'agent_session'
) AS sessions;
