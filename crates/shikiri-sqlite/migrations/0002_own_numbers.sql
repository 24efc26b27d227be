-- Chunks are numbered by whoever writes them. AUTOINCREMENT kept the last number in a page of its
-- own, which every commit wrote and synced; the fact `last_event` is written only when the newest
-- chunk is erased.
INSERT INTO facts (name, value) SELECT 'last_event', seq FROM sqlite_sequence WHERE name = 'events';

CREATE TABLE numbered (
    id        INTEGER PRIMARY KEY,
    stream    INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    body      TEXT    NOT NULL
);
INSERT INTO numbered SELECT id, stream, first_seq, last_seq, at, body FROM events ORDER BY id;
DROP TABLE events;
ALTER TABLE numbered RENAME TO events;
CREATE UNIQUE INDEX events_by_stream ON events (stream, last_seq);
