#!/usr/bin/env bash
# A turn of a conversation over REST, as server-sent events.
. "$(dirname "${BASH_SOURCE[0]}")/../start-server.sh"
start_server

echo "== a conversation"
conversation="$(call POST /conversations -d '{}' | field id)"
echo "$conversation"

echo "== a turn with two subagents; the connection breaks after three events"
turn='{"executor": {"user_id": "me"}, "user_input": "Plan a day in Kyoto.\n#offline events=4 tools=1 subagents=2"}'
execution="$(call POST "/conversations/$conversation/executions" -d "$turn" -H 'Prefer: respond-async' | field id)"
call GET "/executions/$execution/events" -N 2> /dev/null | awk '/^id: / { id = $2 } /^event:/ { print; if (id == 3) exit }' || true

echo "== the rest, from event 3 on"
call GET "/executions/$execution/events" -N -H 'Last-Event-ID: 3' | grep '^event:'

echo "== the bill: the main thread and each subagent"
call GET "/executions/$execution/usage" | grep -o '"kind":"[a-z]*"\|"input_tokens":[0-9]*' | paste - -
echo "== done"
