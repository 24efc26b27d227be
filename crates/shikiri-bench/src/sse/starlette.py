"""A durable SSE server as one would write it: each event is inserted, then sent."""

import asyncio
import json
import os
import socket
import sqlite3
import sys
import time

import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

try:
    from uvloop import run
except ImportError:
    from asyncio import run

TEXT = (
    "The quick brown fox jumps over the lazy dog while the band plays on and on, "
    "and nobody in the whole wide town sees it"
)

database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("PRAGMA synchronous = NORMAL")
database.execute(
    "CREATE TABLE events (id INTEGER PRIMARY KEY, stream INTEGER, seq INTEGER, body TEXT)"
)
database.execute("CREATE UNIQUE INDEX events_by_stream ON events (stream, seq)")

gate = asyncio.Event()
waiting = 0
streams = 0


async def events(request):
    global streams
    count = int(request.query_params["count"])
    streams += 1
    return StreamingResponse(produce(streams, count), media_type="text/event-stream")


async def produce(stream, count):
    global waiting
    opening = gate
    waiting += 1
    await opening.wait()
    for seq in range(1, count + 1):
        data = json.dumps(
            {
                "seq": seq,
                "at": "2026-11-15T20:00:00.000Z",
                "run_id": f"run_{stream:032}",
                "index": seq,
                "level": "info",
                "logger": "bench",
                "message": TEXT,
            }
        )
        database.execute(
            "INSERT INTO events (stream, seq, body) VALUES (?, ?, ?)", (stream, seq, data)
        )
        yield f"id: {seq}\nevent: log\ndata: {data}\n\n".encode()


def obey():
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    asyncio.get_running_loop().create_task(open_gate(int(line.split()[1])))


async def open_gate(count):
    global gate, waiting
    while waiting < count:
        await asyncio.sleep(0.001)
    waiting = 0
    gate, opening = asyncio.Event(), gate
    print("went", time.monotonic_ns(), flush=True)
    opening.set()


async def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    application = Starlette(routes=[Route("/events", events)])
    config = uvicorn.Config(application, log_level="warning", access_log=False)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), obey)
    print("listening", "%s:%d" % listener.getsockname(), flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


run(main())
