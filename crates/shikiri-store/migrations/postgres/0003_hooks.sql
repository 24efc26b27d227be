-- The same tables as on SQLite (see there for what they mean).
CREATE TABLE subagents (
    tenant               TEXT COLLATE "C" NOT NULL DEFAULT 'local',
    agent_id             TEXT COLLATE "C" NOT NULL,
    session_id           TEXT COLLATE "C" NOT NULL,
    agent_type           TEXT    NOT NULL DEFAULT 'unknown',
    role                 TEXT,
    role_source          TEXT,
    confidence           TEXT    NOT NULL DEFAULT 'none',
    created_at           TEXT    NOT NULL,
    startup_processed    BIGINT NOT NULL DEFAULT 0,
    startup_processed_at TEXT,
    task_match_index     BIGINT,
    tool_use_id          TEXT,
    parent_agent_id      TEXT,
    delivered            TEXT,
    claimed_by           TEXT,
    claimed_until        TEXT,
    checked              BIGINT NOT NULL DEFAULT 0,
    state                TEXT    NOT NULL DEFAULT 'active',
    ended_at             TEXT,
    end_reason           TEXT,
    usage                TEXT,
    PRIMARY KEY (agent_id, tenant)
);
CREATE INDEX idx_subagents_session ON subagents (session_id);
CREATE INDEX idx_subagents_unprocessed ON subagents (session_id, startup_processed) WHERE startup_processed = 0;

-- Calls that spawn subagents.
CREATE TABLE task_spawns (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant           TEXT COLLATE "C" NOT NULL DEFAULT 'local',
    session_id       TEXT COLLATE "C" NOT NULL,
    tool_use_id      TEXT COLLATE "C" NOT NULL,
    transcript_index BIGINT,
    subagent_type    TEXT,
    role             TEXT,
    prompt_hash      TEXT,
    name             TEXT,
    parent_agent_id  TEXT,
    matched_agent_id TEXT,
    delivered        TEXT,
    created_at       TEXT    NOT NULL,
    ended_at         TEXT,
    UNIQUE (session_id, tool_use_id, tenant)
);
CREATE INDEX idx_task_spawns_session ON task_spawns (session_id);
CREATE INDEX idx_task_spawns_unmatched ON task_spawns (session_id, matched_agent_id) WHERE matched_agent_id IS NULL;

-- What a hook session was told, by name.
CREATE TABLE sessions (
    session_id  TEXT COLLATE "C" NOT NULL,
    hook_name   TEXT COLLATE "C" NOT NULL,
    tenant      TEXT COLLATE "C" NOT NULL DEFAULT 'local',
    created_at  TEXT    NOT NULL,
    last_tokens BIGINT DEFAULT 0,
    status      TEXT    NOT NULL DEFAULT 'active',
    expired_at  TEXT,
    PRIMARY KEY (session_id, hook_name, tenant)
);
CREATE INDEX idx_sessions_status ON sessions (status);

CREATE TABLE hook_log (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL DEFAULT 'local',
    session_id  TEXT COLLATE "C" NOT NULL,
    hook_name   TEXT COLLATE "C" NOT NULL,
    event_type  TEXT    NOT NULL,
    agent_id    TEXT,
    timestamp   TEXT    NOT NULL,
    result      TEXT,
    details     TEXT,
    duration_ms BIGINT,
    tool_use_id TEXT
);
CREATE INDEX idx_hook_log_session ON hook_log (session_id, timestamp);
-- Only calls of MCP tools have the id: the server that is called asks who called.
CREATE INDEX idx_hook_log_tool_use ON hook_log (tool_use_id) WHERE tool_use_id IS NOT NULL;

-- How far each transcript has been read.
CREATE TABLE transcripts (
    path      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    inode     BIGINT NOT NULL,
    read_to   BIGINT NOT NULL,
    lines     BIGINT NOT NULL,
    tokens    BIGINT,
    updated_at TEXT   NOT NULL
);
