-- All lines of a session by time, as the original's queries ask for them. An index of some of the
-- lines serves only queries that name its condition.
DROP INDEX idx_hook_log_session;
CREATE INDEX idx_hook_log_session ON hook_log (session_id, timestamp);
