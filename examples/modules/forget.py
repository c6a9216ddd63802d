#!/usr/bin/env python3
"""A context module (Amplifier module, stdio): what the model sees of the past.

Before each model call, transform gets the messages and returns those that are
sent. This one keeps the last two tool results whole and shortens older ones.
Every result stays in place, as its call would else be left without an answer.
The session itself keeps everything.
"""
import json
import sys

KEEP, SHORT = 2, 80
DESCRIPTION = {
    "name": "forget", "version": "1.0.0", "kind": "context", "capabilities": ["transform"],
    "inputs": {"transform": {"type": "object", "required": ["messages"]}}, "outputs": {},
}


def transform(messages):
    results = [i for i, m in enumerate(messages) if m["role"] == "tool"]
    for i in results[:-KEEP]:
        text = messages[i]["text"]
        if len(text) > SHORT:
            messages[i] = {**messages[i], "text": f"{text[:SHORT]} [{len(text) - SHORT} characters forgotten]"}
    return {"messages": messages}


def invoke(op, args):
    if op != "transform":
        return {"ok": False, "error": {"code": "unsupported_op", "message": f"there is no operation {op}"}}
    return {"ok": True, "result": transform(**args)}


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = DESCRIPTION
    else:
        reply = invoke(request["op"], request.get("args", {}))
    print(json.dumps(reply), flush=True)
