"""Finds its way to a token with a client's secret, as the official Python client does by itself, and calls a tool.

Arguments: URL, issuer, client id, client secret. Prints one JSON line at the end.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client

URL, ISSUER, CLIENT, SECRET = sys.argv[1:5]


class Memory:
    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def main():
    memory = Memory()
    auth = ClientCredentialsOAuthProvider(
        server_url=URL, storage=memory, client_id=CLIENT, client_secret=SECRET, issuer=ISSUER
    )
    http = httpx2.AsyncClient(auth=auth, timeout=httpx2.Timeout(30, read=60))
    async with Client(streamable_http_client(URL, http_client=http)) as client:
        joined = await client.call_tool("join-swarm", {"name": "fetched"})
        assert not joined.is_error, joined.content
        print(json.dumps({"agent": joined.structured_content["yourAgentId"], "scope": memory.tokens.scope}))


asyncio.run(main())
