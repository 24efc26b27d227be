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
from checks import ended, plain, reporting


class Client:
    def __init__(self, answer=None):
        self.logs, self.asked, self.errors, self.told = [], [], [], asyncio.Queue()
        self.answer = answer

    def session(self, read, write, bare=False):
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
            self.told.put_nowait(plain(message))
        elif isinstance(message, Exception):
            self.errors.append(str(message))

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
        return [plain(found) for found in (await self.raw.list_resources()).resources]

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


class World:
    def __init__(self, place):
        self.place, self.era = place, place["era"]
        assert self.era == "legacy", "this client knows no other era"

    @contextlib.asynccontextmanager
    async def connect(self, answer=None, bare=False, quiet=False, to="url"):
        client = Client(answer)
        streams = self.stdio() if "program" in self.place else self.http(to)
        async with streams as (read, write, *_), client.session(read, write, bare):
            await client.initialize()
            if quiet:
                await client.raw.set_logging_level("warning")
            yield client

    def stdio(self):
        program, folder = self.place["program"], self.place["folder"]
        env = {"CLAUDE_PROJECT_DIR": folder, "HOME": folder}
        return stdio_client(StdioServerParameters(command=program, args=["mcp"], env=env))

    @contextlib.asynccontextmanager
    async def http(self, to="url", headers={}, terminate=True):
        key = self.place["hasty_key" if to == "hasty_url" else "key"]
        headers = {"Authorization": f"Bearer {key}", **headers}
        timeout = httpx.Timeout(30, read=60)
        async with httpx.AsyncClient(headers=headers, timeout=timeout) as http:
            url = self.place[to]
            streams = streamable_http_client(url, http_client=http, terminate_on_close=terminate)
            async with streams as opened:
                yield opened

    async def resumed(self, client):
        return await checks.resumed(client, {"steps": 16, "step_ms": 100})

    async def resumed_again(self, client):
        return await checks.resumed(client, {"steps": 24, "step_ms": 100})

    async def resubscribed(self, client):
        return await checks.subscription(client, least_changes=2)

    async def resumed_by_token(self):
        """One client leaves in the middle of a call; another takes it up where the first was."""
        told, token, twice = [], None, asyncio.Event()
        arguments = {"steps": 4, "step_ms": 600}
        params = types.CallToolRequestParams(name="long_running_agent", arguments=arguments)
        request = types.ClientRequest(types.CallToolRequest(params=params))

        def on_progress(progress):
            told.append(progress)
            if len(told) == 2:
                twice.set()

        async def on_token(new):
            nonlocal token
            token = new

        first = Client()
        async with self.http(terminate=False) as (read, write, session_id):
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
        second, metadata = Client(), ClientMessageMetadata(resumption_token=token)
        async with self.http(headers=headers) as (read, write, _), second.session(read, write):
            result = await second.raw.send_request(request, types.CallToolResult, metadata=metadata)
        # Its progress has the first call's token, for which 1.30.0 has no callback here.
        while not second.told.empty():
            message = second.told.get_nowait()
            if message["method"] == "notifications/progress":
                told.append([message["params"][part] for part in ("progress", "total", "message")])
        return ended(second, told, plain(result))


checks.main(World)
