// The Inspector's command line as a client: each call is a command line of its own, with a connection of its own.
// The Inspector's start takes ten times as long as a call, so most command lines run in this process, by the function
// that the Inspector's launcher gives its arguments to; the others are the program, as people start it.

import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.SKEIN_TEST_NODE_MODULES}/`);
const clients = path.join(path.dirname(require.resolve("@modelcontextprotocol/inspector/package.json")), "clients");
const launcher = path.join(clients, "launcher/build/index.js");
const { runCli } = await import(pathToFileURL(path.join(clients, "cli/build/index.js")).href);

// What the program ends with when a tool's result is an error.
const TOOL_ERROR = 5;

// Else it asks the desktop for a place to keep secrets.
process.env.MCP_INSPECTOR_SECRET_STORE = "memory";

// What a command line prints and what it ends with, by a program of its own.
function alone(args) {
  return new Promise((resolve) => {
    execFile(process.execPath, [launcher, "--cli", ...args], { maxBuffer: 1 << 24 }, (error, printed, complaint) =>
      resolve({ printed, status: error?.code ?? 0, complaint }),
    );
  });
}

// The same in this process.
async function here(args) {
  const write = process.stdout.write;
  let printed = "";
  process.stdout.write = (text, ...rest) => {
    printed += text;
    rest.find((one) => typeof one === "function")?.();
    return true;
  };
  try {
    await runCli([process.execPath, "inspector-cli", ...args]);
    return { printed, status: 0 };
  } catch (error) {
    return { printed, status: error.exitCode, complaint: String(error) };
  } finally {
    process.stdout.write = write;
  }
}

// Says of a call whether it is to be a program of its own: the first two of every sixth of the tools, beginning with one of
// them, for the plan calls a tool with good arguments and then with bad ones. Whoever goes through the plan six times, each
// time with another beginning, has had each tool so. With SKEIN_INSPECTOR_PROGRAMS=all every call is.
export function choice(tools, beginning) {
  const left = tools.filter((_, number) => number % 6 === beginning).flatMap((tool) => [tool, tool]);
  return (tool) => {
    const place = left.indexOf(tool);
    if (place >= 0) left.splice(place, 1);
    return place >= 0 || process.env.SKEIN_INSPECTOR_PROGRAMS === "all";
  };
}

// One who calls with a token. `programs` is such a choice.
export async function session(url, token, era, programs) {
  const settings = path.join(mkdtempSync(path.join(process.env.HOME, "inspector-")), "mcp.json");
  const skein = { type: "streamable-http", url, protocolEra: era, headers: { Authorization: `Bearer ${token}` } };
  writeFileSync(settings, JSON.stringify({ mcpServers: { skein } }));
  const common = ["--config", settings, "--server", "skein", "--stored-auth-only", "--format", "json", "--method"];

  async function say(run, ...args) {
    const { printed, status, complaint } = await run([...common, ...args]);
    if (status !== 0 && status !== TOOL_ERROR) throw new Error(`it ended with ${status}: ${complaint}`);
    const { result } = JSON.parse(printed);
    if ((status === TOOL_ERROR) !== (result.isError ?? false)) throw new Error(`it ended with ${status}: ${printed}`);
    return result;
  }

  const { protocolVersion } = await say(here, "initialize");
  return {
    getNegotiatedProtocolVersion: () => protocolVersion,
    listTools: () => say(here, "tools/list"),
    callTool({ name, arguments: given }) {
      const tool = name === "tools_call" ? given.name : name;
      const args = ["tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(given)];
      return say(programs(tool) ? alone : here, ...args);
    },
    close: async () => {},
  };
}
