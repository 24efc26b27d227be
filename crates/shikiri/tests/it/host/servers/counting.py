"""A server of the older era on the official Python SDK, with an event store of its own: what a
client missed is played to it again. It says where it listens."""

import asyncio
import socket

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel


class Kept(EventStore):
    """Events in the order of their numbers; None marks the place where a stream began."""

    def __init__(self):
        self.events = []
        self.asked_for = asyncio.Event()

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        self.asked_for.set()
        last = int(last_event_id)
        stream_id = self.events[last - 1][0]
        for number, (stream, message) in enumerate(self.events[last:], last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


kept = Kept()
server = FastMCP("counting", log_level="WARNING", event_store=kept)
gate = asyncio.Semaphore(0)


@server.tool()
async def count(to: int, pauses: list[int], context: Context) -> str:
    """Counts, and waits after each of the pauses for `go_on`."""
    for number in range(1, to + 1):
        await context.report_progress(number, to, f"at {number}")
        if number in pauses:
            await gate.acquire()
    return f"counted to {to}"


@server.tool()
async def go_on() -> str:
    """Ends a pause."""
    gate.release()
    return "gone on"


orders = []


@server.tool()
async def hang_up() -> str:
    """Ends the stream of the last order, not the order, and waits for the client to come back."""
    await orders[-1].close_sse_stream()
    await kept.asked_for.wait()
    return "hung up"


class Order(BaseModel):
    dish: str
    portions: int = 2


@server.tool()
async def order(context: Context) -> str:
    """Asks a person."""
    orders.append(context)
    answer = await context.elicit("What shall it be?", Order)
    if answer.action != "accept":
        return answer.action
    return f"{answer.data.portions} x {answer.data.dish}"


@server.tool()
async def ponder(about: str, context: Context) -> str:
    """Asks a model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text=about))
    said = await context.session.create_message(
        [question], max_tokens=50, related_request_id=context.request_id
    )
    return f"{said.model}: {said.content.text}"


listener = socket.create_server(("127.0.0.1", 0))
print(f"listening 127.0.0.1:{listener.getsockname()[1]}", flush=True)
config = uvicorn.Config(server.streamable_http_app(), log_level="warning", access_log=False)
uvicorn.Server(config).run(sockets=[listener])
