#!/usr/bin/env bash
# Two agents that the server starts by itself: one has a task and needs to talk to the other.
. "$(dirname "${BASH_SOURCE[0]}")/../start-server.sh"
start_server

echo "== a project with two agents and a task"
shikiri projects create demo > /dev/null
shikiri agents add worker-a --spawn auto --model offline > /dev/null
shikiri agents add worker-b --spawn auto --model offline > /dev/null
shikiri tasks add 'Talk to worker-b: play 6 rounds of word chain' --assignee worker-a

echo "== the talk"
for _ in $(seq 300); do
  dialogue="$(shikiri dialogues list --json | grep -o 'dia_[0-9a-zA-Z]*' | head -n 1 || true)"
  [ -z "$dialogue" ] || break
  sleep 0.1
done
shikiri dialogues show "$dialogue" --follow

echo "== the outcome"
for _ in $(seq 300); do
  shikiri tasks list --json | grep -q '"status": "done"' && break
  sleep 0.1
done
shikiri delegations list
shikiri tasks list
echo "== done"
