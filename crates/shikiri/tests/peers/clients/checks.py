"""What every official Python client is made to do. How it is asked differs by version, so that is
the version's own file; what it saw is printed, one line of JSON for each check, and judged by the
test that started this."""

import asyncio
import contextlib
import importlib.metadata
import json
import sys
import traceback

# Nothing here takes long; whoever waits longer waits for what will not come.
PATIENCE = 20
YES = {"confirm": True}
YES_WITH_NOTES = {"confirm": True, "notes": "窓側"}


def main(world_of):
    """The only argument says, in JSON, which era to speak and where the servers are. The world has
    `connect(**options)`, which is a client, connected."""
    place = json.loads(sys.argv[1])
    world = world_of(place)
    asyncio.run(over_stdio(world) if "program" in place else over_http(world))


async def tell(name, check):
    told = {"check": name}
    try:
        async with asyncio.timeout(PATIENCE):
            told["saw"] = await check()
    except Exception:
        told["failed"] = traceback.format_exc()
    print(json.dumps(told), flush=True)


async def over_http(world):
    def on(check, **options):
        async def connected():
            async with world.connect(**{"answer": ("accept", YES), **options}) as client:
                return await check(client)

        return connected

    for name, check in [
        ("open", on(opened)),
        ("tools", on(tools)),
        ("progress", on(progress)),
        ("quiet", on(quiet, quiet=True)),
        ("accept", on(travel, answer=("accept", YES_WITH_NOTES))),
        ("decline", on(travel, answer=("decline", None))),
        ("no_elicitation", on(travel, bare=True)),
        ("sampling", on(research)),
        ("no_sampling", on(research, bare=True)),
        ("resource", on(resource)),
        ("subscription", on(subscription)),
        ("structured", on(structured)),
        ("handed_over", on(handed_over, to="hasty_url")),
        ("prompts", on(prompts)),
        ("completion", on(completion)),
    ]:
        await tell(name, check)
    # These wait most of the time, so they wait together.
    slow = [
        tell("resume", on(world.resumed, to="cut_once_url")),
        tell("subscription_resume", on(world.resubscribed, to="cut_changes_url")),
    ]
    if world.era == "legacy":
        slow.append(tell("resume_twice", on(world.resumed_again, to="cut_twice_url")))
        slow.append(tell("resume_by_token", world.resumed_by_token))
    await asyncio.gather(*slow)


async def over_stdio(world):
    async def everything():
        async with world.connect(answer=("accept", YES_WITH_NOTES)) as client:
            saw = {"open": await opened(client), "tools": await tools(client)}
            for name, check in [("progress", progress), ("accept", travel), ("sampling", research)]:
                client.asked, client.errors = [], []
                saw[name] = await check(client)
            return saw

    await tell("stdio", everything)


async def opened(client):
    return {
        "client": importlib.metadata.version("mcp"),
        "protocol": client.protocol,
        "server": client.server,
        "capabilities": sorted(client.capabilities),
    }


async def tools(client):
    return sorted(tool["name"] for tool in await client.tools())


async def progress(client):
    told = []
    result = await client.call("long_running_agent", {"steps": 8, "step_ms": 20}, told.append)
    return {**ended(client, told, result), "logs": client.logs}


async def quiet(client):
    result = await client.call("long_running_agent", {"steps": 2, "step_ms": 5})
    return {"logs": client.logs, "result": result["structuredContent"]}


async def travel(client):
    told = []
    arguments = {"destination": "京都", "step_ms": 5}
    result = await client.call("travel_agent", arguments, told.append)
    return {**ended(client, told, result), "asked": client.asked}


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
        "listed": uri in [listed["uri"] for listed in await client.resources()],
        "templates": sorted(await client.templates()),
        "missing": await failure(client.read("shikiri://runs/run_none")),
    }


async def waiting(client):
    """A run that will not change before it gets an answer: its address, and what answers it."""
    arguments = {"agent": "travel_agent", "input": {"step_ms": 5}}
    result = await client.call("run_agent", arguments)
    run = result["structuredContent"]["run_id"]
    asking = await client.call("run_wait", {"run_id": run})
    question = asking["structuredContent"]["questions"][0]["question_id"]
    return run_link(result), {"run_id": run, "question_id": question, "answer": YES}


async def subscription(client, least_changes=1):
    """Reads again whenever it is told to, until the run has ended and it was told so often."""
    uri, answer = await waiting(client)
    read = [await client.read(uri)]
    async with client.watch(uri) as changed:
        await client.call("run_answer", answer)
        while read[-1]["status"] != "completed" or len(read) <= least_changes:
            assert await changed() == uri
            read.append(await client.read(uri))
    return {"first": read[0]["status"], "changes": len(read) - 1, "last": read[-1]}


async def structured(client):
    """The client's own validator, on the forms that an agent's answer has and on one it has not."""
    await client.tools()
    run, _ = await started(client, 1, 60_000)
    status = await client.call("run_status", {"run_id": run})
    await client.call("run_cancel", {"run_id": run})
    forms = {
        "result": {"steps": 3},
        "handed_over": status["structuredContent"],
        "neither": {"steps": "three"},
    }
    return {
        name: await failure(client.validate("long_running_agent", form))
        for name, form in forms.items()
    }


async def handed_over(client):
    """A server that answers with the run almost at once."""
    await client.tools()
    result = await client.call("long_running_agent", {"steps": 1, "step_ms": 60_000})
    run = result["structuredContent"]["run_id"]
    await client.call("run_cancel", {"run_id": run})
    return {
        "status": result["structuredContent"]["status"],
        "is_linked": run_of(result) == run,
        "is_error": result["isError"],
    }


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


async def resumed(client, arguments):
    """The client comes back by itself."""
    told = []
    result = await client.call("long_running_agent", arguments, told.append)
    return ended(client, told, result)


def ended(client, told, result):
    return {
        "progress": told,
        "errors": client.errors,
        "run": run_of(result),
        "result": result["structuredContent"],
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
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def run_link(result):
    links = [part["uri"] for part in result["content"] if part["type"] == "resource_link"]
    assert len(links) == 1, links
    return links[0]


def run_of(result):
    return run_link(result).rsplit("/", 1)[1]


def reporting(on_progress):
    if on_progress is None:
        return None

    async def report(progress, total, message):
        on_progress([progress, total, message])

    return report


def plain(model):
    """As it is on the wire."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
