#!/usr/bin/env python3
"""An orchestrator (Amplifier module, stdio): it sees an input before its turn.

before_turn gets the input and the session's state. It returns {"input": …}, the
same or another one, or {"reject": "why"}. This one rejects a word, which
state_patch may change: {"guard": {"word": "…"}}.
"""
import json
import sys

DESCRIPTION = {
    "name": "guard", "version": "1.0.0", "kind": "orchestrator", "capabilities": ["before_turn"],
    "inputs": {"before_turn": {"type": "object", "required": ["input"]}}, "outputs": {},
}


def before_turn(input, state=None):
    word = ((state or {}).get("guard") or {}).get("word", "swordfish")
    if word.lower() in json.dumps(input, ensure_ascii=False).lower():
        return {"reject": f"the word {word!r} is not to be used"}
    return {"input": input}


def invoke(op, args):
    if op != "before_turn":
        return {"ok": False, "error": {"code": "unsupported_op", "message": f"there is no operation {op}"}}
    return {"ok": True, "result": before_turn(**args)}


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = DESCRIPTION
    else:
        reply = invoke(request["op"], request.get("args", {}))
    print(json.dumps(reply), flush=True)
