"""A hook with nothing but Python's own library: reads the event, writes one row, says nothing."""

import json
import os
import sqlite3
import sys

event = json.load(sys.stdin)
folder = os.path.join(os.environ["CLAUDE_PROJECT_DIR"], ".hook")
os.makedirs(folder, exist_ok=True)
database = sqlite3.connect(os.path.join(folder, "state.db"), timeout=30, isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("PRAGMA synchronous = NORMAL")
database.execute("BEGIN IMMEDIATE")
database.execute(
    "CREATE TABLE IF NOT EXISTS hook_log"
    " (id INTEGER PRIMARY KEY, session_id TEXT, event TEXT, agent_id TEXT, tool TEXT)"
)
database.execute(
    "INSERT INTO hook_log (session_id, event, agent_id, tool) VALUES (?, ?, ?, ?)",
    (event["session_id"], event["hook_event_name"], event.get("agent_id"), event.get("tool_name")),
)
database.execute("COMMIT")
