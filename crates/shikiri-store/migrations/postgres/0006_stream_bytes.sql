-- How many bytes of events a stream holds, so that what a tenant stores is known without reading it.
ALTER TABLE streams ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
UPDATE streams SET bytes = held.bytes
FROM (SELECT stream, sum(octet_length(body))::bigint AS bytes FROM events GROUP BY stream) held
WHERE streams.id = held.stream;
