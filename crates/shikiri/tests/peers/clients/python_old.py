"""The official Python client of the legacy era."""

import asyncio
import contextlib
import json

import httpx
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata
from pydantic import AnyUrl

import checks
from checks import plain, run_of, subscription


class Client:
    def __init__(self, answer=None):
        self.logs, self.asked, self.told = [], [], asyncio.Queue()
        self.answer = answer

    def session(self, read, write, *, bare=False):
        handlers = {} if bare else {
            "elicitation_callback": self.on_elicitation,
            "sampling_callback": self.on_sampling,
        }
        self.raw = ClientSession(
            read, write, logging_callback=self.on_log, message_handler=self.on_message, **handlers
        )
        return self.raw

    async def on_log(self, params):
        self.logs.append(plain(params))

    async def on_message(self, message):
        if isinstance(message, types.ServerNotification):
            await self.told.put(plain(message))

    async def on_elicitation(self, _context, params):
        self.asked.append(plain(params))
        action, content = self.answer
        return types.ElicitResult(action=action, content=content)

    async def on_sampling(self, _context, params):
        self.asked.append(plain(params))
        said = types.TextContent(type="text", text="要するに鍵")
        return types.CreateMessageResult(role="assistant", content=said, model="test")

    async def initialize(self):
        opened = await self.raw.initialize()
        self.protocol = opened.protocolVersion
        self.server = opened.serverInfo.name
        self.capabilities = plain(opened.capabilities)

    async def tools(self):
        return [plain(tool) for tool in (await self.raw.list_tools()).tools]

    async def call(self, name, arguments, on_progress=None):
        callback = reporting(on_progress)
        return plain(await self.raw.call_tool(name, arguments, progress_callback=callback))

    async def read(self, uri):
        contents = (await self.raw.read_resource(AnyUrl(uri))).contents
        return json.loads(contents[0].text)

    async def resources(self):
        return [str(found.uri) for found in (await self.raw.list_resources()).resources]

    async def templates(self):
        return [t.uriTemplate for t in (await self.raw.list_resource_templates()).resourceTemplates]

    @contextlib.asynccontextmanager
    async def watch(self, uri):
        await self.raw.subscribe_resource(AnyUrl(uri))

        async def changed():
            while True:
                told = await self.told.get()
                if told["method"] == "notifications/resources/updated":
                    return told["params"]["uri"]

        yield changed
        await self.raw.unsubscribe_resource(AnyUrl(uri))

    async def validate(self, tool, form):
        # 1.30.0 has no public way to do what it does to every answer.
        result = types.CallToolResult(content=[], structuredContent=form)
        await self.raw._validate_tool_result(tool, result)

    async def prompts(self):
        return [prompt.name for prompt in (await self.raw.list_prompts()).prompts]

    async def prompt(self, name, arguments):
        return (await self.raw.get_prompt(name, arguments)).messages[0].content.text

    async def complete_prompt(self, name, argument, value):
        reference = types.PromptReference(type="ref/prompt", name=name)
        return await self.complete(reference, argument, value)

    async def complete_resource(self, uri, argument, value):
        reference = types.ResourceTemplateReference(type="ref/resource", uri=uri)
        return await self.complete(reference, argument, value)

    async def complete(self, reference, argument, value):
        completed = await self.raw.complete(reference, {"name": argument, "value": value})
        return completed.completion.values


def reporting(on_progress):
    if on_progress is None:
        return None

    async def report(progress, total, message):
        on_progress([progress, total, message])

    return report


class World:
    def __init__(self, era, way, place):
        assert era == "legacy"
        self.era, self.way, self.place = era, way, place

    def plain(self):
        return self.connected(Client(("accept", {"confirm": True})))

    def bare(self):
        return self.connected(Client(), bare=True)

    def answering(self, action, content):
        return lambda: self.connected(Client((action, content)))

    def through_proxy(self):
        return self.connected(Client(("accept", {"confirm": True})), url=self.place[2])

    @contextlib.asynccontextmanager
    async def quiet(self):
        async with self.plain() as client:
            await client.raw.set_logging_level("warning")
            yield client

    @contextlib.asynccontextmanager
    async def connected(self, client, *, bare=False, url=None):
        async with self.streams(url) as (read, write, *_):
            async with client.session(read, write, bare=bare):
                await client.initialize()
                yield client

    def streams(self, url=None):
        if self.way == "stdio":
            program, folder = self.place
            environment = {"CLAUDE_PROJECT_DIR": folder}
            return stdio_client(StdioServerParameters(command=program, args=["mcp"], env=environment))
        return self.http(url or self.place[0])

    @contextlib.asynccontextmanager
    async def http(self, url, headers={}, terminate=True):
        headers = {"Authorization": f"Bearer {self.place[1]}", **headers}
        timeout = httpx.Timeout(30, read=60)
        async with httpx.AsyncClient(headers=headers, timeout=timeout) as http:
            streams = streamable_http_client(url, http_client=http, terminate_on_close=terminate)
            async with streams as opened:
                yield opened

    async def resumed(self, client):
        """The proxy cuts the call's stream; the client comes back by itself."""
        told = []
        result = await client.call("long_running_agent", {"steps": 16, "step_ms": 100}, told.append)
        return {"progress": told, "run": run_of(result), "result": result["structuredContent"]}

    async def resubscribed(self, client):
        """The proxy cuts the stream that tells of changes."""
        return await subscription(client)

    async def resumed_by_token(self):
        """One client leaves in the middle of a call; another takes it up where the first was."""
        told, token, arguments = [], None, {"steps": 4, "step_ms": 600}
        request = types.ClientRequest(
            types.CallToolRequest(
                params=types.CallToolRequestParams(name="long_running_agent", arguments=arguments)
            )
        )
        twice = asyncio.Event()

        def on_progress(progress):
            told.append(progress)
            if len(told) == 2:
                twice.set()

        async def on_token(new):
            nonlocal token
            token = new

        async with self.http(self.place[0], terminate=False) as (read, write, session_id):
            first = Client()
            async with first.session(read, write):
                await first.initialize()
                call = first.raw.send_request(
                    request,
                    types.CallToolResult,
                    metadata=ClientMessageMetadata(on_resumption_token_update=on_token),
                    progress_callback=reporting(on_progress),
                )
                async with checks.left_to_itself(call):
                    await twice.wait()
            headers = {"mcp-session-id": session_id(), "mcp-protocol-version": first.protocol}
        return await self.take_up(request, headers, token, told)

    async def take_up(self, request, headers, token, told):
        async with self.http(self.place[0], headers) as (read, write, _):
            second = Client()
            async with second.session(read, write):
                result = await second.raw.send_request(
                    request, types.CallToolResult, metadata=ClientMessageMetadata(resumption_token=token)
                )
        # Its progress has the first call's token, for which 1.30.0 has no callback here.
        while not second.told.empty():
            message = second.told.get_nowait()
            if message["method"] == "notifications/progress":
                params = message["params"]
                told.append([params["progress"], params.get("total"), params.get("message")])
        result = plain(result)
        return {"progress": told, "run": run_of(result), "result": result["structuredContent"]}


checks.main(World)
