"""Calls every tool of the plan with good and with bad arguments, by a Python client.

Arguments: URL, lead token, worker token, the letter in the lead's inbox, client (mcp or fastmcp), mode (auto, legacy or a
revision). Prints one JSON line at the end: the revision that was spoken, the tools that were listed, and what went otherwise
than planned.
"""

import asyncio
import contextlib
import json
import pathlib
import sys

URL, LEAD, WORKER, LETTER, CLIENT, MODE = sys.argv[1:7]
PLAN = json.loads(pathlib.Path(__file__).with_name("plan.json").read_text())


@contextlib.asynccontextmanager
async def session(token):
    if CLIENT == "fastmcp":
        from fastmcp import Client

        async with Client(URL, auth=token) as client:
            yield FastMcp(client)
        return
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=httpx2.Timeout(30, read=120))
    async with Client(streamable_http_client(URL, http_client=http), mode=MODE) as client:
        yield Mcp(client)


class Mcp:
    def __init__(self, client):
        self.client = client
        self.protocol = client.protocol_version

    async def tools(self):
        return [tool.model_dump(by_alias=True) for tool in (await self.client.list_tools()).tools]

    async def call(self, tool, arguments):
        """Whether it is an error, and the structured result. The client checks the result against the listed schema."""
        result = await self.client.call_tool(tool, arguments)
        return result.is_error, result.structured_content


class FastMcp:
    def __init__(self, client):
        self.client = client
        self.protocol = None

    async def tools(self):
        return [tool.model_dump(by_alias=True) for tool in await self.client.list_tools()]

    async def call(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments, raise_on_error=False)
        return result.is_error, result.structured_content


def filled(value, kept):
    if isinstance(value, str) and value.startswith("$"):
        return kept[value[1:]]
    if isinstance(value, list):
        return [filled(item, kept) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, kept) for name, item in value.items()}
    return value


def at(value, path):
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def spoilt(schema):
    """Arguments that no tool takes: the first of its own with a value of no fitting type, or none if it has none."""
    for name in schema.get("properties", {}):
        return {name: 7 if schema["properties"][name].get("type") == "object" else {"no": "such"}}
    return None


async def run(callers, schemas, listed, problems):
    async def call(who, tool, arguments):
        if tool not in listed[who]:
            tool, arguments = "tools_call", {"name": tool, "arguments": arguments}
        return await callers[who].call(tool, arguments)

    kept = {"letter": LETTER}
    for step in PLAN:
        who, tool = step["as"], step["tool"]
        try:
            is_error, result = await call(who, tool, filled(step["with"], kept))
            said = "error" if is_error else "ok" if result.get("success", True) else "refused"
            if said != step["expect"]:
                problems.append(f"{tool}: {said}, {result}")
            for name, path in step.get("keep", {}).items():
                kept[name] = at(result, path)
            bad = spoilt(schemas[tool])
            if bad is None:
                continue
            is_error, result = await call(who, tool, bad)
            if not is_error:
                problems.append(f"{tool} took {bad}: {result}")
        except Exception as error:
            problems.append(f"{tool}: {type(error).__name__}: {error}")


async def main():
    async with session(LEAD) as lead, session(WORKER) as worker:
        callers = {"lead": lead, "worker": worker}
        listed = {who: {tool["name"] for tool in await caller.tools()} for who, caller in callers.items()}
        _, found = await lead.call("tools_find", {"names": sorted({step["tool"] for step in PLAN})[:25], "detail": "full", "format": "rows"})
        _, more = await lead.call("tools_find", {"names": sorted({step["tool"] for step in PLAN})[25:], "detail": "full", "format": "rows"})
        schemas = {tool["name"]: tool["inputSchema"] for tool in found["tools"] + more["tools"]}
        problems = [f"{name} is unknown" for answer in (found, more) for name in answer.get("unknown", [])]
        await run(callers, schemas, listed, problems)
        print(json.dumps({"protocol": lead.protocol, "tools": sorted(listed["lead"]), "problems": problems}))


asyncio.run(main())
