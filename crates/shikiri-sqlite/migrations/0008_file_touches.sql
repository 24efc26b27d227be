-- Which agents used a file: one row per tool call and file, by the outcomes that hooks report. `name`
-- is the path as seen from the project or from the worktree that the file is in.
CREATE TABLE file_touches (
    id         INTEGER PRIMARY KEY,
    tenant     TEXT    NOT NULL DEFAULT 'local',
    session_id TEXT    NOT NULL,
    agent_id   TEXT,
    agent_type TEXT,
    role       TEXT,
    tool       TEXT    NOT NULL,
    path       TEXT    NOT NULL,
    name       TEXT,
    removed    INTEGER NOT NULL DEFAULT 0,
    command    TEXT,
    outcome    TEXT    NOT NULL,
    timestamp  TEXT    NOT NULL
);
CREATE INDEX file_touches_by_path ON file_touches (path);
CREATE INDEX file_touches_by_name ON file_touches (name) WHERE name IS NOT NULL;
