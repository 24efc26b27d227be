-- The same as on SQLite (see there for what it means).
ALTER TABLE subagents ADD COLUMN usage_complete BIGINT NOT NULL DEFAULT 0;
ALTER TABLE subagents ADD COLUMN transcript_path TEXT;
ALTER TABLE subagents ADD COLUMN resumed_at TEXT;
UPDATE subagents SET usage_complete = 1 WHERE state = 'ended' AND usage IS NOT NULL;
CREATE INDEX idx_subagents_unread ON subagents (session_id) WHERE usage_complete = 0 AND state = 'ended';

CREATE TABLE hook_sessions (
    tenant          TEXT COLLATE "C" NOT NULL DEFAULT 'local',
    session_id      TEXT COLLATE "C" NOT NULL,
    agent_type      TEXT,
    transcript_path TEXT,
    created_at      TEXT COLLATE "C" NOT NULL,
    counted_from    TEXT,
    prompted_at     TEXT,
    ended_at        TEXT,
    usage           TEXT,
    usage_complete  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (session_id, tenant)
);
CREATE INDEX idx_hook_sessions_created ON hook_sessions (tenant, created_at);
CREATE INDEX idx_subagents_created ON subagents (tenant, created_at COLLATE "C");
