"""Joins as lead and as worker with the official Python client, and takes one task through its life.

Arguments: URL, what the lead and the worker have to say who they are, mode (legacy or 2026-07-28). Prints one JSON line
at the end. Each is known by a token of its own, or, as in Agent Swarm, by KEY@AGENT: the key of all, and its id beside it.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL, LEAD, WORKER, MODE = sys.argv[1:5]


def session(credential):
    token, _, agent = credential.partition("@")
    headers = {"Authorization": f"Bearer {token}"} | ({"X-Agent-ID": agent} if agent else {})
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=120))
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
        for scope, of, value in [("global", None, "all"), ("agent", me["yourAgentId"], "own")]:
            where = {"scopeId": of} if of else {}
            secret = await call(lead, "set-config", scope=scope, key=MODE, value=value, isSecret=True, **where)
            assert secret["config"]["value"] == "********", secret
        applies = await call(
            worker, "get-config", key=MODE, agentId=me["yourAgentId"], includeSecrets=True
        )
        assert applies["configs"][0]["value"] == "own", applies
        raw = await call(worker, "list-config", key=MODE, includeSecrets=True)
        assert [one["value"] for one in raw["configs"]] == ["********", "own"], raw
        refused = await call(worker, "delete-config", id=raw["configs"][0]["id"])
        assert not refused["success"], refused
        assert (await call(lead, "delete-config", id=raw["configs"][0]["id"]))["success"]
        inbox = f"{MODE}@agentmail.to"
        mail = await call(worker, "register-agentmail-inbox", action="register", inboxId=inbox)
        assert mail["mappings"][0]["inboxEmail"] is None, mail
        taken = await call(worker, "register-agentmail-inbox", action="list")
        assert taken["mappings"][0]["inboxId"] == inbox, taken
        print(json.dumps({"protocol": lead.protocol_version, "tools": tools, "task": task}))


asyncio.run(main())
