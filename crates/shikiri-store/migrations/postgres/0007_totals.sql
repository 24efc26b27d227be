-- The same as on SQLite (see there for what it means), in this database's words.
CREATE TABLE totals (
    kind     TEXT     COLLATE "C" NOT NULL,
    tenant   TEXT     COLLATE "C" NOT NULL,
    period   TEXT     COLLATE "C" NOT NULL,
    name     TEXT     COLLATE "C" NOT NULL,
    slot     SMALLINT NOT NULL,
    amounts  TEXT     NOT NULL,
    noted_at BIGINT,
    note     TEXT,
    PRIMARY KEY (kind, tenant, period, name, slot)
);
CREATE INDEX totals_by_tenant ON totals (tenant);

-- The number of runs by state, executions apart.
INSERT INTO totals (kind, tenant, period, name, slot, amounts)
SELECT 'run_count', tenant, '',
       CASE WHEN substr(id, 1, 4) = 'exe_' THEN 'execution' ELSE 'agent' END || ' ' || state, 0,
       count(*)::text
FROM records WHERE kind = 'run'
GROUP BY tenant, CASE WHEN substr(id, 1, 4) = 'exe_' THEN 'execution' ELSE 'agent' END || ' ' || state;

-- Lists of the records in one state. Most kinds of records have no states.
CREATE INDEX records_by_state ON records (kind, tenant, state, created_at, id) WHERE state <> '';

-- Bills from before are due: the program adds them to the totals of their days.
UPDATE records SET due_at = created_at WHERE kind = 'usage';
