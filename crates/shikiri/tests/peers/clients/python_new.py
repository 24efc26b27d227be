"""The official Python client of both eras."""

import asyncio
import contextlib
import json
import warnings

import httpx2
import mcp
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.message import ClientMessageMetadata

import checks
from checks import ended, plain, reporting

# What the newer era has no more is still to be served in the older one.
warnings.simplefilter("ignore", MCPDeprecationWarning)


class Client:
    def __init__(self, answer=None):
        self.logs, self.asked, self.errors, self.told = [], [], [], asyncio.Queue()
        self.answer = answer

    def options(self, era, bare=False, quiet=False):
        handlers = {} if bare else {
            "elicitation_callback": self.on_elicitation,
            "sampling_callback": self.on_sampling,
        }
        return {
            "mode": "legacy" if era == "legacy" else "auto",
            # Of the newer era, in which nobody is told who did not ask.
            "log_level": None if quiet else "info",
            "logging_callback": self.on_log,
            "message_handler": self.on_message,
            **handlers,
        }

    async def on_log(self, params):
        self.logs.append(plain(params))

    async def on_message(self, message):
        if isinstance(message, Exception):
            self.errors.append(str(message))
        else:
            self.told.put_nowait(plain(message))

    async def on_elicitation(self, _context, params):
        self.asked.append(plain(params))
        action, content = self.answer
        return types.ElicitResult(action=action, content=content)

    async def on_sampling(self, _context, params):
        self.asked.append(plain(params))
        said = types.TextContent(type="text", text="要するに鍵")
        return types.CreateMessageResult(role="assistant", content=said, model="test")

    def adopt(self, raw):
        self.raw, self.protocol = raw, raw.protocol_version
        self.server = raw.server_info.name
        self.capabilities = plain(raw.server_capabilities)

    async def tools(self):
        return [plain(tool) for tool in (await self.raw.list_tools()).tools]

    async def call(self, name, arguments, on_progress=None):
        callback = reporting(on_progress)
        return plain(await self.raw.call_tool(name, arguments, progress_callback=callback))

    async def read(self, uri):
        return json.loads((await self.raw.read_resource(uri)).contents[0].text)

    async def resources(self):
        return [plain(found) for found in (await self.raw.list_resources()).resources]

    async def templates(self):
        listed = await self.raw.list_resource_templates()
        return [template.uri_template for template in listed.resource_templates]

    @contextlib.asynccontextmanager
    async def watch(self, uri):
        if self.protocol >= "2026":
            async with self.raw.listen(resource_subscriptions=[uri]) as listening:

                async def event():
                    return (await anext(listening)).uri

                yield event
            return
        await self.raw.subscribe_resource(uri)

        async def changed():
            while True:
                told = await self.told.get()
                if told["method"] == "notifications/resources/updated":
                    return told["params"]["uri"]

        yield changed
        await self.raw.unsubscribe_resource(uri)

    async def validate(self, tool, form):
        result = types.CallToolResult(content=[], structured_content=form)
        await self.raw.session.validate_tool_result(tool, result)

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

    @contextlib.asynccontextmanager
    async def connect(self, answer=None, bare=False, quiet=False, to="url"):
        client = Client(answer)
        streams = self.stdio() if "program" in self.place else self.http(to)
        async with mcp.Client(streams, **client.options(self.era, bare, quiet)) as raw:
            client.adopt(raw)
            if quiet and self.era == "legacy":
                await raw.set_logging_level("warning")
            yield client

    def stdio(self):
        program, folder = self.place["program"], self.place["folder"]
        env = {"CLAUDE_PROJECT_DIR": folder, "HOME": folder}
        return stdio_client(StdioServerParameters(command=program, args=["mcp"], env=env))

    @contextlib.asynccontextmanager
    async def http(self, to="url", headers={}, terminate=True, on_response=None):
        key = self.place["hasty_key" if to == "hasty_url" else "key"]
        headers = {"Authorization": f"Bearer {key}", **headers}
        hooks = {"response": [on_response] if on_response else []}
        timeout = httpx2.Timeout(30, read=60)
        client = httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks)
        async with client as http:
            url = self.place[to]
            streams = streamable_http_client(url, http_client=http, terminate_on_close=terminate)
            async with streams as opened:
                yield opened

    async def resumed(self, client):
        """In the older era the client comes back by itself; in the newer the call is lost to it,
        and its run is stopped."""
        told, arguments = [], {"steps": 16, "step_ms": 100}
        if self.era == "legacy":
            return await checks.resumed(client, arguments)
        call = client.call("long_running_agent", arguments, told.append)
        lost = await checks.failure(call)
        listed = await client.resources()
        newest = next(run for run in listed if "long_running_agent" in run["title"])
        waited = await client.call("run_wait", {"run_id": newest["name"]})
        return {"lost": lost, "progress": told, "status": waited["structuredContent"]}

    async def resumed_again(self, client):
        return await checks.resumed(client, {"steps": 24, "step_ms": 100})

    async def resubscribed(self, client):
        """In the newer era nothing is told again: the client listens anew, and looks."""
        if self.era == "legacy":
            return await checks.subscription(client, least_changes=2)
        uri, answer = await checks.waiting(client)
        lost = None
        async with client.watch(uri) as changed:
            await client.call("run_answer", answer)
            while lost is None:
                try:
                    await changed()
                except SubscriptionLost:
                    lost = "SubscriptionLost"
        async with client.watch(uri) as changed:
            while (read := await client.read(uri))["status"] != "completed":
                await changed()
        return {"lost": lost, "last": read}

    async def resumed_by_token(self):
        """One client leaves in the middle of a call; another takes it up where the first was."""
        told, token, session, twice = [], None, None, asyncio.Event()
        arguments = {"steps": 4, "step_ms": 600}
        params = types.CallToolRequestParams(name="long_running_agent", arguments=arguments)
        request = types.CallToolRequest(params=params)

        def on_progress(progress):
            told.append(progress)
            if len(told) == 2:
                twice.set()

        async def on_token(new):
            nonlocal token
            token = new

        async def on_response(response):
            nonlocal session
            session = response.headers.get("mcp-session-id", session)

        transport = self.http(terminate=False, on_response=on_response)
        async with mcp.Client(transport, **Client().options("legacy")) as raw:
            call = raw.session.send_request(
                request,
                types.CallToolResult,
                metadata=ClientMessageMetadata(on_resumption_token_update=on_token),
                progress_callback=reporting(on_progress),
            )
            async with checks.left_to_itself(call):
                await twice.wait()
            headers = {"mcp-session-id": session, "mcp-protocol-version": raw.protocol_version}
        return await self.take_up(request, headers, token, told)

    async def take_up(self, request, headers, token, told):
        # `Client` of 2.3.0 always opens a session of its own; what is below it need not.
        second, metadata = Client(), ClientMessageMetadata(resumption_token=token)
        async with self.http(headers=headers) as (read, write):
            async with ClientSession(read, write, message_handler=second.on_message) as raw:
                result = await raw.send_request(request, types.CallToolResult, metadata=metadata)
        # Its progress has the first call's token, for which there is no callback here.
        while not second.told.empty():
            message = second.told.get_nowait()
            if message["method"] == "notifications/progress":
                told.append([message["params"][part] for part in ("progress", "total", "message")])
        return ended(second, told, plain(result))


checks.main(World)
