"""What every official Python client is made to do. How it is asked differs by version, so that is
the version's own file; what it saw is printed, one line of JSON for each check, and judged by the
test that started this."""

import asyncio
import contextlib
import json
import sys
import traceback

# Nothing here takes long; whoever waits longer waits for what will not come.
PATIENCE = 20


def main(connect):
    """`connect(handlers, url)` is a client, connected; `ERA http URL KEY PROXY` or
    `ERA stdio PROGRAM FOLDER` says where to."""
    era, way, *place = sys.argv[1:]
    checks = {"http": over_http, "stdio": over_stdio}[way](connect(era, way, place))
    asyncio.run(run(checks))


async def run(checks):
    for name, check in checks:
        told = {"check": name}
        try:
            async with asyncio.timeout(PATIENCE):
                told["saw"] = await check()
        except BaseException:  # a client may fail with anything, also with groups of it
            told["failed"] = traceback.format_exc()
        print(json.dumps(told), flush=True)


def over_http(world):
    plain, bare = world.plain, world.bare
    checks = [
        ("open", on(plain, opened)),
        ("tools", on(plain, tools)),
        ("progress", on(plain, progress)),
        ("quiet", on(world.quiet, quiet)),
        ("accept", on(world.answering("accept", {"confirm": True, "notes": "窓側"}), travel)),
        ("decline", on(world.answering("decline", None), travel)),
        ("no_elicitation", on(bare, travel)),
        ("sampling", on(plain, research)),
        ("no_sampling", on(bare, research)),
        ("resource", on(plain, resource)),
        ("subscription", on(plain, subscription)),
        ("structured", on(plain, structured)),
        ("wait", on(plain, wait)),
        ("prompts", on(plain, prompts)),
        ("completion", on(plain, completion)),
        ("resume", on(world.through_proxy, world.resumed)),
        ("subscription_resume", on(world.through_proxy, world.resubscribed)),
    ]
    if world.era == "legacy":
        checks.append(("resume_by_token", world.resumed_by_token))
    return checks


def over_stdio(world):
    async def all_at_once(client):
        saw = {"open": await opened(client), "tools": await tools(client)}
        for name, check in [("progress", progress), ("travel", travel), ("research", research)]:
            saw[name] = await check(client)
        return saw

    return [("stdio", on(world.answering("accept", {"confirm": True, "notes": "窓側"}), all_at_once))]


def on(connect, check):
    """The check on a client of its own."""

    async def connected():
        async with connect() as client:
            return await check(client)

    return connected


async def opened(client):
    return {
        "protocol": client.protocol,
        "server": client.server,
        "capabilities": sorted(client.capabilities),
    }


async def tools(client):
    return sorted(tool["name"] for tool in await client.tools())


async def progress(client):
    told = []
    arguments = {"steps": 8, "step_ms": 20}
    result = await client.call("long_running_agent", arguments, told.append)
    return {"progress": told, "logs": client.logs, "run": run_of(result), "result": result}


async def quiet(client):
    result = await client.call("long_running_agent", {"steps": 2, "step_ms": 5})
    return {"logs": client.logs, "result": result["structuredContent"]}


async def travel(client):
    told = []
    arguments = {"destination": "京都", "step_ms": 5}
    result = await client.call("travel_agent", arguments, told.append)
    return {"asked": client.asked, "progress": told, "result": result["structuredContent"]}


async def research(client):
    result = await client.call("research_agent", {"topic": "錠前", "step_ms": 5})
    return {"asked": client.asked, "result": result["structuredContent"]}


async def started(client, steps, step_ms):
    """A run in the background: its id and address."""
    arguments = {"agent": "long_running_agent", "input": {"steps": steps, "step_ms": step_ms}}
    result = await client.call("run_agent", arguments)
    return result["structuredContent"]["run_id"], run_link(result)


async def resource(client):
    run, uri = await started(client, 3, 20)
    ended = await client.call("run_wait", {"run_id": run, "max_seconds": 10})
    return {
        "run": run,
        "uri": uri,
        "waited": ended["structuredContent"],
        "read": await client.read(uri),
        "events": [event["event"] for event in (await client.read(f"{uri}/events"))["events"]],
        "listed": uri in await client.resources(),
        "templates": sorted(await client.templates()),
        "missing": await failure(client.read("shikiri://runs/run_none")),
    }


async def subscription(client):
    """Reads again whenever it is told to, until the run has ended."""
    _, uri = await started(client, 4, 60)
    changes, read = 0, []
    async with client.watch(uri) as changed:
        while not read or read[-1]["status"] != "completed":
            assert await changed() == uri
            changes += 1
            read.append(await client.read(uri))
    return {"changes": changes, "last": read[-1]}


async def structured(client):
    """The client's own validator, on the forms that an agent's answer has, and on one it has not."""
    await client.tools()
    run, _ = await started(client, 1, 60_000)
    handed_over = (await client.call("run_status", {"run_id": run}))["structuredContent"]
    await client.call("run_cancel", {"run_id": run})
    forms = {"result": {"steps": 3}, "handed_over": handed_over, "neither": {"steps": "three"}}
    return {
        name: await failure(client.validate("long_running_agent", form))
        for name, form in forms.items()
    }


async def wait(client):
    """A call that is answered before its run has ended."""
    run, _ = await started(client, 1, 60_000)
    told = []
    result = await client.call("run_wait", {"run_id": run, "max_seconds": 1}, told.append)
    stopped = await client.call("run_cancel", {"run_id": run})
    status = [answer["structuredContent"]["status"] for answer in (result, stopped)]
    return {"status": status, "progress": told}


async def prompts(client):
    arguments = {"destination": "京都", "step_ms": "5"}
    return {
        "names": sorted(await client.prompts()),
        "text": await client.prompt("travel_agent", arguments),
        "unknown": await failure(client.prompt("travel_agent", {"colour": "red"})),
    }


async def completion(client):
    run, _ = await started(client, 1, 1)
    return {
        "run": run,
        "prompt": await client.complete_prompt("travel_agent", "destination", "Pa"),
        "resource": await client.complete_resource("shikiri://runs/{id}", "id", run[:-3]),
    }


async def failure(work):
    """What went wrong, or nothing."""
    try:
        await work
    except Exception as error:
        return str(error) or type(error).__name__
    return None


@contextlib.asynccontextmanager
async def left_to_itself(work):
    """Does the work beside, and drops it at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(BaseException):
            await task


def run_link(result):
    links = [part["uri"] for part in result["content"] if part["type"] == "resource_link"]
    assert len(links) == 1, links
    return links[0]


def run_of(result):
    return run_link(result).rsplit("/", 1)[1]


def plain(model):
    """As it is on the wire."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
