#!/usr/bin/env bash
# A long call over MCP. Its caller is killed, and the next one gets what was missed.
. "$(dirname "${BASH_SOURCE[0]}")/../start-server.sh"
start_server
cat > .mcp.json <<'END'
{"mcpServers": {"agents": {"url": "${URL}/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}}}
END
export SHIKIRI_TRUST=1         # this folder's .mcp.json is ours

echo "== tools"
shikiri host tools agents | grep -E 'travel_agent|research_agent|long_running_agent'

echo "== a call that asks before it books; --yes agrees"
shikiri host call agents travel_agent --arg destination=Kyoto --arg step_ms=100 --yes

echo "== a long call, whose caller is killed as soon as a run works on it"
shikiri host call agents long_running_agent --arg steps=12 --arg step_ms=300 > lost.txt 2>&1 &
caller=$!
for _ in $(seq 300); do
  shikiri runs list --json | grep -q '"status": "running"' && shikiri host tokens list --json | grep -q long_running_agent && break
  sleep 0.1
done
kill -9 "$caller"
wait "$caller" 2> /dev/null || true

echo "== resumed"
shikiri host resume
echo "== done"
