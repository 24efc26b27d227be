-- As on SQLite (see there for the reasons).
DROP INDEX idx_hook_log_session;
CREATE INDEX idx_hook_log_session ON hook_log (session_id, timestamp);
