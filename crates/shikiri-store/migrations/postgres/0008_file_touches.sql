-- The same as on SQLite (see there for what it means).
CREATE TABLE file_touches (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     TEXT COLLATE "C" NOT NULL DEFAULT 'local',
    session_id TEXT COLLATE "C" NOT NULL,
    agent_id   TEXT COLLATE "C",
    agent_type TEXT,
    role       TEXT,
    tool       TEXT    NOT NULL,
    path       TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C",
    removed    BIGINT  NOT NULL DEFAULT 0,
    command    TEXT,
    outcome    TEXT    NOT NULL,
    timestamp  TEXT    NOT NULL
);
-- Paths may be longer than an entry of a B-tree.
CREATE INDEX file_touches_by_path ON file_touches USING hash (path);
CREATE INDEX file_touches_by_name ON file_touches USING hash (name);
