-- Sums that commits add to, so that a sum over many records is known without reading them. `amounts`
-- are decimal numbers with a space between, and the rows of all slots add up to the total.
CREATE TABLE totals (
    kind     TEXT    NOT NULL,
    tenant   TEXT    NOT NULL,
    period   TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    slot     INTEGER NOT NULL,
    amounts  TEXT    NOT NULL,
    noted_at INTEGER,
    note     TEXT,
    PRIMARY KEY (kind, tenant, period, name, slot)
);
CREATE INDEX totals_by_tenant ON totals (tenant);

-- The number of runs by state, executions apart.
INSERT INTO totals (kind, tenant, period, name, slot, amounts)
SELECT 'run_count', tenant, '',
       CASE WHEN substr(id, 1, 4) = 'exe_' THEN 'execution' ELSE 'agent' END || ' ' || state, 0,
       count(*)
FROM records WHERE kind = 'run'
GROUP BY tenant, CASE WHEN substr(id, 1, 4) = 'exe_' THEN 'execution' ELSE 'agent' END || ' ' || state;

-- Lists of the records in one state. Most kinds of records have no states.
CREATE INDEX records_by_state ON records (kind, tenant, state, created_at, id) WHERE state <> '';

-- Bills from before are due: the program adds them to the totals of their days.
UPDATE records SET due_at = created_at WHERE kind = 'usage';
