"""The Python peer: both eras on one port. It says where it listens and ends when its input is
closed."""

import importlib.util
import os
import socket
import sys
import threading

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("peer", log_level="WARNING")


# Without structured output: the reply is then the same as everybody's.
@server.tool(structured_output=False)
async def echo(text: str) -> str:
    return text


@server.tool(structured_output=False)
async def burst(count: int, context: Context) -> str:
    for number in range(1, count + 1):
        await context.report_progress(number, count, f"event {number}")
    return "done"


def end_with_the_parent():
    sys.stdin.read()
    os._exit(0)


def main():
    for helper in ("uvloop", "httptools"):
        if importlib.util.find_spec(helper) is None:
            print(f"the Python peer is slower than it could be: no {helper}", file=sys.stderr)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    # Connections inherit it. asyncio sets it only on sockets that it has made itself.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    print(f"listening 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


main()
