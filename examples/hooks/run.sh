#!/usr/bin/env bash
# Three subagents of one Claude Code session, by the events that Claude Code sends to its hooks.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. "$here/../start-server.sh"
mkdir .shikiri
cp "$here/conventions.toml" .shikiri/

# One event, as Claude Code writes it to `shikiri hook`: event NAME FIELDS
event() {
  printf '{"session_id": "example", "cwd": "%s", "hook_event_name": "%s", %s}' "$folder" "$1" "$2" | shikiri hook
}

# The main agent spawns a subagent with a role: spawn ROLE AGENT_ID PROMPT
spawn() {
  local prompt="[ROLE:$1] $3" call="toolu_$1"
  event PreToolUse "\"tool_name\": \"Agent\", \"tool_use_id\": \"$call\", \"tool_input\": {\"prompt\": \"$prompt\", \"subagent_type\": \"general-purpose\"}" > /dev/null
  event SubagentStart "\"agent_id\": \"$2\", \"agent_type\": \"general-purpose\""
  echo
  event PostToolUse "\"tool_name\": \"Agent\", \"tool_use_id\": \"$call\", \"tool_input\": {\"prompt\": \"$prompt\"}, \"tool_response\": {\"status\": \"async_launched\", \"agentId\": \"$2\"}" > /dev/null
}

# A subagent wants to write a file: write AGENT_ID FILE
write() {
  event PreToolUse "\"agent_id\": \"$1\", \"agent_type\": \"general-purpose\", \"tool_name\": \"Write\", \"tool_use_id\": \"toolu_write_$1\", \"tool_input\": {\"file_path\": \"$folder/$2\", \"content\": \"x\"}"
  echo
}

event SessionStart '"source": "startup"' > /dev/null
echo "== each subagent gets the text of its role as it starts"
spawn tester a1 'Run the tests'
spawn coder a2 'Write the code'
spawn scribe a3 'Write the notes'

echo "== the coder may write src/main.rs, so the hook says nothing"
write a2 src/main.rs
echo "== the tester may not"
write a1 src/main.rs
echo "== the tree"
shikiri subagents
echo "== done"
