-- Streams and their events. Events lie in the order of their commits; a row is a chunk: the
-- events of one stream that were committed together, one line each (`AT_MS KIND JSON`).
CREATE TABLE streams (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE,
    tenant     TEXT    NOT NULL,
    head       INTEGER NOT NULL,
    first_kept INTEGER NOT NULL DEFAULT 1,
    closed     INTEGER NOT NULL DEFAULT 0,
    note       TEXT
);
CREATE INDEX streams_by_tenant ON streams (tenant);

CREATE TABLE events (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    stream    INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    body      TEXT    NOT NULL
);
CREATE UNIQUE INDEX events_by_stream ON events (stream, last_seq);

-- A released lease keeps its row, so that its fence keeps rising.
CREATE TABLE leases (
    name       TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Typed documents with the columns that are searched.
CREATE TABLE records (
    kind       TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    state      TEXT    NOT NULL,
    parent     TEXT,
    owner      TEXT,
    uniq       TEXT,
    due_at     INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    doc        TEXT    NOT NULL,
    PRIMARY KEY (kind, tenant, id)
);
CREATE INDEX records_in_order ON records (kind, tenant, created_at, id);
CREATE INDEX records_by_parent ON records (kind, tenant, parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX records_by_owner ON records (kind, owner) WHERE owner IS NOT NULL;
CREATE INDEX records_due ON records (kind, due_at) WHERE due_at IS NOT NULL;
CREATE UNIQUE INDEX records_unique ON records (kind, tenant, uniq) WHERE uniq IS NOT NULL;

-- Facts about the file itself, such as the boot that its lease times belong to.
CREATE TABLE facts (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
