-- How many bytes of events a stream holds, so that what a tenant stores is known without reading it.
ALTER TABLE streams ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE streams SET bytes = coalesce(
    (SELECT sum(octet_length(body)) FROM events WHERE events.stream = streams.id), 0);
