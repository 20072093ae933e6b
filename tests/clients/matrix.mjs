// Calls every tool of the plan with good and with bad arguments, by a TypeScript client.
// Arguments: URL, lead token, worker token, the letter in the lead's inbox, client (v2, v1 or inspector), mode (auto, legacy or
// a revision; the Inspector calls its eras legacy and modern), number of the view. Prints one JSON line at the end: the revision
// that was spoken, the tools that were listed, and what went otherwise than planned.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, leadToken, workerToken, letter, line, mode, view] = process.argv.slice(2);
const require = createRequire(`${process.env.SKEIN_TEST_NODE_MODULES}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const plan = JSON.parse(readFileSync(new URL("plan.json", import.meta.url), "utf8"));
const names = [...new Set(plan.map((step) => step.tool))].sort();

async function session(token) {
  if (line === "inspector") return inspector.session(url, token, mode, programs);
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  const me = { name: "matrix", version: "1" };
  if (line === "v1") {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(me, { capabilities: {} });
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const versionNegotiation = { mode: ["auto", "legacy"].includes(mode) ? mode : { pin: mode } };
  const client = new Client(me, { versionNegotiation, capabilities: {} });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}

const filled = (value, kept) => {
  if (typeof value === "string" && value.startsWith("$")) return kept[value.slice(1)];
  if (Array.isArray(value)) return value.map((item) => filled(item, kept));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, filled(item, kept)]));
};
const at = (value, path) => path.split(".").reduce((inner, step) => inner[step], value);

// Arguments that no tool takes: the first of its own with a value of no fitting type, or none if it has none.
function spoilt(schema) {
  const [first] = Object.entries(schema.properties ?? {});
  return first && { [first[0]]: first[1].type === "object" ? 7 : { no: "such" } };
}

const inspector = line === "inspector" && (await import("./inspector.mjs"));
const programs = inspector && inspector.choice(names, Number(view) + (mode === "modern" ? 3 : 0));
const callers = { lead: await session(leadToken), worker: await session(workerToken) };
const listed = {};
for (const [who, caller] of Object.entries(callers)) {
  listed[who] = new Set((await caller.listTools()).tools.map((tool) => tool.name));
}

// The client checks the result against the listed schema.
async function call(who, tool, args) {
  const direct = listed[who].has(tool);
  const request = direct ? { name: tool, arguments: args } : { name: "tools_call", arguments: { name: tool, arguments: args } };
  return callers[who].callTool(request);
}

const problems = [];
const schemas = {};
for (const some of [names.slice(0, 25), names.slice(25)]) {
  const { structuredContent: found } = await call("lead", "tools_find", { names: some, detail: "full", format: "rows" });
  for (const tool of found.tools) schemas[tool.name] = tool.inputSchema;
  problems.push(...(found.unknown ?? []).map((unknown) => `${unknown.name} is unknown`));
}

const kept = { letter };
for (const step of plan) {
  const { as: who, tool } = step;
  try {
    const { isError, structuredContent: result } = await call(who, tool, filled(step.with, kept));
    const said = isError ? "error" : (result.success ?? true) ? "ok" : "refused";
    if (said !== step.expect) problems.push(`${tool}: ${said}, ${JSON.stringify(result)}`);
    for (const [name, path] of Object.entries(step.keep ?? {})) kept[name] = at(result, path);
    const bad = spoilt(schemas[tool]);
    if (bad === undefined) continue;
    const answer = await call(who, tool, bad);
    if (!answer.isError) problems.push(`${tool} took ${JSON.stringify(bad)}: ${JSON.stringify(answer.structuredContent)}`);
  } catch (error) {
    problems.push(`${tool}: ${error}`);
  }
}

const protocol = callers.lead.getNegotiatedProtocolVersion?.() ?? null;
console.log(JSON.stringify({ protocol, tools: [...listed.lead].sort(), problems }));
await Promise.all(Object.values(callers).map((caller) => caller.close()));
