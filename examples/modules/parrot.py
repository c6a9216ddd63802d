#!/usr/bin/env python3
"""A provider (Amplifier module, stdio): a model that can be selected.

generate gets the conversation (messages), what may be called (tools) and the
system prompt (system), and returns one message: text, tool_calls, stop_reason,
usage. This one repeats the last thing that the user said; where that is
"call NAME", it calls the tool of that name without arguments.
"""
import json
import sys

DESCRIPTION = {
    "name": "parrot", "version": "1.0.0", "kind": "provider", "capabilities": ["generate"],
    "inputs": {"generate": {"type": "object", "required": ["messages"]}}, "outputs": {},
}


def generate(messages, tools=(), system=""):
    last = messages[-1] if messages else {"role": "user", "text": ""}
    if last["role"] == "tool":
        return {"text": f"The tool says: {last['text']}", "stop_reason": "end"}
    word, _, name = last["text"].partition(" ")
    if word == "call" and name in [t["name"] for t in tools]:
        call = {"id": f"call-{len(messages)}", "name": name, "arguments": {}}
        return {"text": "", "tool_calls": [call], "stop_reason": "tool_calls"}
    text = last["text"]
    size = sum(len(m["text"].split()) for m in messages)
    return {"text": text, "stop_reason": "end",
            "usage": {"input_tokens": size, "output_tokens": len(text.split())}}


def invoke(op, args):
    if op != "generate":
        return {"ok": False, "error": {"code": "unsupported_op", "message": f"there is no operation {op}"}}
    return {"ok": True, "result": generate(**args)}


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = DESCRIPTION
    else:
        reply = invoke(request["op"], request.get("args", {}))
    print(json.dumps(reply), flush=True)
