-- The same tables as on SQLite (see there for what they mean), in this database's words.
-- Searched text is COLLATE "C": the order is then that of the bytes, as on SQLite and in our own
-- code, and no upgrade of the operating system's collations can make an index wrong.
CREATE TABLE streams (
    id         BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       TEXT    COLLATE "C" NOT NULL UNIQUE,
    tenant     TEXT    COLLATE "C" NOT NULL,
    head       BIGINT  NOT NULL,
    first_kept BIGINT  NOT NULL DEFAULT 1,
    closed     BOOLEAN NOT NULL DEFAULT FALSE,
    note       TEXT
);
CREATE INDEX streams_by_tenant ON streams (tenant, name);

CREATE TABLE events (
    id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream    BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    body      TEXT   NOT NULL
);
CREATE UNIQUE INDEX events_by_stream ON events (stream, last_seq);
-- Rows lie in the order of their times, so a summary per range of pages finds the old ones, at
-- next to no cost for an append.
CREATE INDEX events_by_age ON events USING brin (at) WITH (autosummarize = on, pages_per_range = 32);

CREATE TABLE leases (
    name       TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    fence      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE records (
    kind       TEXT    COLLATE "C" NOT NULL,
    tenant     TEXT    COLLATE "C" NOT NULL,
    id         TEXT    COLLATE "C" NOT NULL,
    version    BIGINT  NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    state      TEXT    COLLATE "C" NOT NULL,
    parent     TEXT    COLLATE "C",
    owner      TEXT    COLLATE "C",
    uniq       TEXT    COLLATE "C",
    due_at     BIGINT,
    created_at BIGINT  NOT NULL,
    updated_at BIGINT  NOT NULL,
    doc        TEXT    NOT NULL,
    PRIMARY KEY (kind, tenant, id)
);
CREATE INDEX records_in_order ON records (kind, tenant, created_at, id);
CREATE INDEX records_by_parent ON records (kind, tenant, parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX records_by_owner ON records (kind, owner) WHERE owner IS NOT NULL;
CREATE INDEX records_due ON records (kind, due_at) WHERE due_at IS NOT NULL;
CREATE UNIQUE INDEX records_unique ON records (kind, tenant, uniq) WHERE uniq IS NOT NULL;

CREATE TABLE facts (
    name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
