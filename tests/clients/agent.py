"""An agent that follows the steps it is given as arguments, and writes down what came of each.

    tree          starts a child, and a grandchild in a session of its own
    hold          goes on once there is a file `go` in the work folder
    deaf          does not end when it is asked to
    polite        posts a message when it is asked to end, and ends
    environment   writes down its environment
    look=PATH     tries to read a file or folder
    result        asks for the result of its last call until there is one
    exit=STATUS   ends with this exit status once it is through
    fill=PATH     writes to a file until there is no room
    TOOL=JSON     calls a tool; $CALL stands for the id of the last call, $TASK of the last task, $INSTANCE for its own

Each step becomes one line of JSON with its time in `journal` in the work folder, between a first line `start` and a last
`end`. In a container, whose folder is closed, it is printed. One that is started again after a long sleep goes on behind its first wait.
"""

import errno
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

VERSION = "2026-07-28"
LOOK = 0.02
# The service failed: the same request asked again finds out what became of it.
FAILED = {"overloaded", "unavailable", "not_owner", "outcome_unknown"}


def note(step, answer=None):
    line = {"instance": os.environ["SKEIN_INSTANCE"], "pid": os.getpid(), "step": step, "answer": answer}
    line["at"] = time.time()
    text = (json.dumps(line) + "\n").encode()
    try:
        journal = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o660)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        os.write(1, text)
        return
    os.write(journal, text)
    os.close(journal)


def post(tool, arguments, key):
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "skein-tests", "version": "1"},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": "Bearer " + os.environ["SKEIN_TOKEN"],
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Idempotency-Key": key,
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    request = urllib.request.Request(os.environ["SKEIN_URL"], json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as response:
        text = response.read().decode()
    if not text.startswith("{"):
        text = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()][-1]
    return json.loads(text)


def call(tool, arguments):
    """Repeats what got no answer, or that of a service that failed, with the same key; goes on with a wait that is not over."""
    key = str(uuid.uuid4())
    while True:
        try:
            answer = post(tool, arguments, key)
        except urllib.error.HTTPError as error:
            if error.code not in (503, 504):
                return {"status": error.code, "body": error.read().decode()}
        except (OSError, http.client.HTTPException):
            pass
        else:
            if "result" not in answer:
                return answer
            content = answer["result"].get("structuredContent") or answer["result"]
            if content.get("status") == "waiting":
                key = str(uuid.uuid4())
            elif content.get("code") not in FAILED:
                return content
        time.sleep(LOOK)


def look(path):
    try:
        if os.path.isdir(path):
            return {"found": os.listdir(path)}
        with open(path) as file:
            return {"found": file.read()}
    except OSError as error:
        return {"refused": type(error).__name__}


def fill(path):
    written = 0
    try:
        with open(path, "wb", buffering=0) as file:
            while True:
                written += file.write(bytes(1 << 20))
    except OSError as error:
        return {"written": written, "refused": errno.errorcode[error.errno]}


def tree():
    script = "setsid sh -c 'echo $$; exec sleep 3600' & exec sleep 3600"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    return {"child": child.pid, "grandchild": int(child.stdout.readline())}


def hold():
    while not os.path.exists("go"):
        time.sleep(LOOK)


def farewell(*_):
    note("farewell", call("post-message", {"content": "asked to end"}))
    sys.exit(0)


def result(id):
    while True:
        answer = call("check_call", {"call_id": id})
        if answer.get("status") not in ("pending", "running"):
            return answer
        time.sleep(LOOK)


def main():
    told = json.loads(os.environ["SKEIN_INPUT"])
    note("start", told)
    last_call, last_task = "", ""
    status = 0
    steps = sys.argv[1:]
    if told.get("type") == "resumed":
        asleep = [step.startswith("wait_for_trigger=") for step in steps].index(True)
        steps = steps[asleep + 1 :]
    for step in steps:
        name, _, argument = step.partition("=")
        answer = None
        if name == "tree":
            answer = tree()
        elif name == "hold":
            hold()
        elif name == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif name == "polite":
            signal.signal(signal.SIGTERM, farewell)
        elif name == "environment":
            answer = dict(os.environ)
        elif name == "look":
            answer = look(argument)
        elif name == "fill":
            answer = fill(argument)
        elif name == "result":
            answer = result(last_call)
        elif name == "exit":
            status = int(argument)
        else:
            argument = argument.replace("$CALL", last_call).replace("$TASK", last_task)
            argument = argument.replace("$INSTANCE", os.environ["SKEIN_INSTANCE"])
            answer = call(name, json.loads(argument))
            last_call = answer.get("call_id", last_call)
            last_task = (answer.get("task") or {}).get("id", last_task)
        note(name, answer)
    note("end")
    sys.exit(status)


main()
