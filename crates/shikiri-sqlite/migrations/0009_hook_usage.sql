-- A transcript is written some time after the event that its agent has ended. Usage that is not
-- complete then is read again.
ALTER TABLE subagents ADD COLUMN usage_complete INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subagents ADD COLUMN transcript_path TEXT;
-- The latest start, or an end after which the agent went on: its last answer is later.
ALTER TABLE subagents ADD COLUMN resumed_at TEXT;
UPDATE subagents SET usage_complete = 1 WHERE state = 'ended' AND usage IS NOT NULL;
CREATE INDEX idx_subagents_unread ON subagents (session_id) WHERE usage_complete = 0 AND state = 'ended';

-- Sessions of Claude Code, and what their main agents spent. `sessions` has what they were told.
CREATE TABLE hook_sessions (
    tenant          TEXT    NOT NULL DEFAULT 'local',
    session_id      TEXT    NOT NULL,
    agent_type      TEXT,
    transcript_path TEXT,
    created_at      TEXT    NOT NULL,
    counted_from    TEXT,
    prompted_at     TEXT,
    ended_at        TEXT,
    usage           TEXT,
    usage_complete  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session_id, tenant)
) WITHOUT ROWID;
CREATE INDEX idx_hook_sessions_created ON hook_sessions (tenant, created_at);
CREATE INDEX idx_subagents_created ON subagents (tenant, created_at);
