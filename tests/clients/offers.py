"""Uses what there is besides tools with the official Python client: prompts, resources, completion, changes, questions.

Arguments: URL, lead token, worker token, mode (legacy or 2026-07-28). Prints one JSON line at the end.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, PromptReference, ResourceTemplateReference, ResourceUpdatedNotification

URL, LEAD, WORKER, MODE = sys.argv[1:5]


def session(token, **more):
    http = httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {token}"}, timeout=httpx2.Timeout(30, read=120)
    )
    return Client(streamable_http_client(URL, http_client=http), mode=MODE, **more)


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, (tool, result.content)
    return result.structured_content


async def read(client, uri):
    return json.loads((await client.read_resource(uri)).contents[0].text)


async def resources(client):
    found, cursor = [], None
    while True:
        page = await client.list_resources(cursor=cursor)
        found += [str(resource.uri) for resource in page.resources]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def answer(context, params):
    assert params.message == "Shall it be blue?", params
    return ElicitResult(action="accept", content={"answer": "yes"})


async def changes(lead, uri, told, make):
    """Makes a change and waits to be told of it."""
    if MODE == "legacy":
        await lead.subscribe_resource(uri)
        await make()
        return await asyncio.wait_for(told.get(), 60)
    async with lead.listen(resource_subscriptions=[uri]) as changed:
        events = aiter(changed)
        # It begins with one, for what has changed before the first look.
        await asyncio.wait_for(anext(events), 60)
        await make()
        return await asyncio.wait_for(anext(events), 60)


async def main():
    told = asyncio.Queue()

    async def heard(message):
        if isinstance(message, ResourceUpdatedNotification):
            await told.put(message)

    hearing = session(LEAD, elicitation_callback=answer, message_handler=heard)
    async with hearing as lead, session(WORKER) as worker:
        me = await call(lead, "join-swarm", name="goose", lead=True)
        await call(worker, "join-swarm", name="duck")
        prompts = [prompt.name for prompt in (await lead.list_prompts()).prompts]
        assert [prompt.name for prompt in (await worker.list_prompts()).prompts] == ["worker"]
        begun = await lead.get_prompt("lead", {"goal": "count the birds"})
        text = begun.messages[0].content.text
        assert "count the birds" in text and "2 agents" in text, text

        tasks = [(await call(lead, "send-task", task=f"count bird {n}"))["task"]["id"] for n in range(130)]
        listed = await resources(lead)
        assert len(listed) == len(set(listed)), "a resource is listed twice"
        assert {f"skein://tasks/{task}" for task in tasks} <= set(listed)
        assert {"skein://tasks", "skein://agents/goose", "skein://agents/duck"} <= set(listed)
        assert (await read(lead, f"skein://tasks/{tasks[0]}"))["task"]["task"] == "count bird 0"
        assert (await read(worker, "skein://agents/goose"))["agent"]["id"] == me["yourAgentId"]
        for nothing in ["skein://tasks/0199aaaa-0000-7000-8000-000000000001", "skein://locks", "file:///etc"]:
            try:
                await lead.read_resource(nothing)
            except Exception as refused:
                assert "there is no" in str(refused), refused
            else:
                raise AssertionError(f"{nothing} was read")
        try:
            await worker.read_resource("skein://runs")
        except Exception as refused:
            assert "operator" in str(refused), refused
        else:
            raise AssertionError("a worker read all runs")

        template = ResourceTemplateReference(type="ref/resource", uri="skein://agents/{name}")
        named = await lead.complete(template, {"name": "name", "value": "go"})
        assert named.completion.values == ["goose"], named
        prompt = PromptReference(type="ref/prompt", name="lead")
        assert (await lead.complete(prompt, {"name": "epic", "value": ""})).completion.values == []

        uri = f"skein://tasks/{tasks[0]}"
        event = await changes(lead, uri, told, lambda: call(lead, "cancel-task", taskId=tasks[0]))

        answered = await call(lead, "tools_call", name="ask_human", arguments={"question": "Shall it be blue?"})
        assert answered == {"outcome": "answered", "answer": "yes"}, answered
        passed = await call(worker, "tools_call", name="ask_human", arguments={"question": "Or red?"})
        assert passed["outcome"] == "asked", passed
        print(json.dumps({"prompts": prompts, "listed": len(listed), "told": event is not None}))


asyncio.run(main())
