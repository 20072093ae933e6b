"""Joins as lead and as worker with the official Python client, and takes one task through its life.

Arguments: URL, lead token, worker token, mode (legacy or 2026-07-28). Prints one JSON line at the end.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL, LEAD, WORKER, MODE = sys.argv[1:5]


def session(token):
    http = httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {token}"}, timeout=httpx2.Timeout(30, read=120)
    )
    return Client(streamable_http_client(URL, http_client=http), mode=MODE)


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, (tool, result.content)
    return result.structured_content


async def main():
    async with session(LEAD) as lead, session(WORKER) as worker:
        tools = [tool.name for tool in (await lead.list_tools()).tools]
        joined = await call(lead, "join-swarm", name=f"lead-{MODE}", lead=True)
        assert joined["success"], joined
        me = await call(worker, "join-swarm", name=f"worker-{MODE}")
        assert me["success"], me
        sent = await call(
            lead, "send-task", task=f"say hello over {MODE}", agentId=me["yourAgentId"], priority=70
        )
        assert sent["success"], sent
        polled = await call(worker, "poll-task")
        assert polled["success"] and polled["task"]["id"] == sent["task"]["id"], polled
        task = polled["task"]["id"]
        assert (await call(worker, "store-progress", taskId=task, progress="half way"))["success"]
        done = await call(worker, "store-progress", taskId=task, status="completed", output="hello")
        assert done["success"], done
        details = await call(lead, "get-task-details", taskId=task)
        assert details["task"]["status"] == "completed", details
        assert details["task"]["output"] == "hello", details
        again = await call(worker, "store-progress", taskId=task, status="failed", failureReason="no")
        assert not again["success"], "a finished task was changed"
        print(json.dumps({"protocol": lead.protocol_version, "tools": tools, "task": task}))


asyncio.run(main())
