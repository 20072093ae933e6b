// Joins as lead and as worker with the official TypeScript client, and takes one task through its life.
// Arguments: URL, lead token, worker token, mode (legacy or 2026-07-28). Prints one JSON line at the end.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, leadToken, workerToken, mode] = process.argv.slice(2);
const require = createRequire(`${process.env.SKEIN_TEST_NODE_MODULES}/`);
const { Client, StreamableHTTPClientTransport } = await import(
  pathToFileURL(require.resolve("@modelcontextprotocol/client")).href
);

async function session(token) {
  const versionNegotiation = mode === "legacy" ? { mode: "legacy" } : { mode: { pin: mode } };
  const client = new Client({ name: "loop", version: "1" }, { versionNegotiation, capabilities: {} });
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}

async function call(client, name, args) {
  const result = await client.callTool({ name, arguments: args });
  assert(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  return result.structuredContent;
}

const lead = await session(leadToken);
const worker = await session(workerToken);
const { tools } = await lead.listTools();
const joined = await call(lead, "join-swarm", { name: `lead-${mode}`, lead: true });
assert(joined.success, JSON.stringify(joined));
const me = await call(worker, "join-swarm", { name: `worker-${mode}` });
assert(me.success, JSON.stringify(me));
const sent = await call(lead, "send-task", {
  task: `say hello over ${mode}`, agentId: me.yourAgentId, priority: 70,
});
assert(sent.success, JSON.stringify(sent));
const polled = await call(worker, "poll-task", {});
assert.equal(polled.task?.id, sent.task.id, JSON.stringify(polled));
const taskId = polled.task.id;
assert((await call(worker, "store-progress", { taskId, progress: "half way" })).success);
assert((await call(worker, "store-progress", { taskId, status: "completed", output: "hello" })).success);
const details = await call(lead, "get-task-details", { taskId });
assert.equal(details.task.status, "completed");
assert.equal(details.task.output, "hello");
for (const [where, value] of [[{ scope: "global" }, "all"], [{ scope: "agent", scopeId: me.yourAgentId }, "own"]]) {
  const set = await call(lead, "set-config", { ...where, key: mode, value, isSecret: true });
  assert.equal(set.config.value, "********", JSON.stringify(set));
}
const applies = await call(worker, "get-config", { key: mode, agentId: me.yourAgentId, includeSecrets: true });
assert.equal(applies.configs[0].value, "own", JSON.stringify(applies));
const raw = await call(worker, "list-config", { key: mode, includeSecrets: true });
assert.deepEqual(raw.configs.map((one) => one.value), ["********", "own"]);
assert.equal((await call(worker, "delete-config", { id: raw.configs[0].id })).success, false);
assert((await call(lead, "delete-config", { id: raw.configs[0].id })).success);
const inboxId = `${mode}@agentmail.to`;
const mail = await call(worker, "register-agentmail-inbox", { action: "register", inboxId });
assert.equal(mail.mappings[0].inboxEmail, null, JSON.stringify(mail));
const own = await call(worker, "register-agentmail-inbox", { action: "list" });
assert.equal(own.mappings[0].inboxId, inboxId, JSON.stringify(own));
console.log(JSON.stringify({
  protocol: lead.getNegotiatedProtocolVersion?.(), tools: tools.map((tool) => tool.name), task: taskId,
}));
await lead.close();
await worker.close();
