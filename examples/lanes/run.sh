#!/usr/bin/env bash
# Two agents ask a chat page at the same time. Each has its own chat there.
. "$(dirname "${BASH_SOURCE[0]}")/../start-server.sh"
export SHIKIRI_PAGES=offline   # pages that answer themselves: nobody is asked
start_server

# Calls a tool over `shikiri mcp`, as the agent $1: ask AGENT QUESTION
ask() {
  shikiri host call "$1" ask_chatgpt_web --arg question="$2" --no-input
}

cat > .mcp.json <<'END'
{"mcpServers": {
  "researcher": {"command": "shikiri", "args": ["mcp"], "env": {"SHIKIRI_AGENT_ID": "researcher", "SHIKIRI_PAGES": "offline"}},
  "writer": {"command": "shikiri", "args": ["mcp"], "env": {"SHIKIRI_AGENT_ID": "writer", "SHIKIRI_PAGES": "offline"}}
}}
END
export SHIKIRI_TRUST=1         # this folder's .mcp.json is ours

echo "== both ask at once"
ask researcher 'What is a lease?' > researcher.txt &
first=$!
ask writer 'リースとは何ですか' > writer.txt
wait "$first"
cat researcher.txt writer.txt

echo "== who asked what"
shikiri history
echo "== done"
