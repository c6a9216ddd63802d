#!/usr/bin/env python3
"""An agent (Amplifier module, stdio): its one operation, run, gets a plan.

The model sees it as the tool scout.run with the arguments goal and inputs. A real
agent would think; this one looks for the goal's words in the files around it.
"""
import json
import sys
from pathlib import Path

DESCRIPTION = {
    "name": "scout", "version": "1.0.0", "kind": "agent", "capabilities": ["run"],
    "inputs": {"run": {"type": "object", "required": ["goal"], "properties": {
        "goal": {"type": "string"}, "inputs": {"type": "object"}}}},
    "outputs": {},
}


def run(goal, inputs=None):
    words = {w.lower() for w in goal.split() if len(w) > 3}
    found = []
    for file in sorted(Path(".").glob((inputs or {}).get("files", "*.md")))[:100]:
        hits = sorted(w for w in words if w in file.read_text(errors="replace").lower())
        if hits:
            found.append({"file": str(file), "words": hits})
    return {"goal": goal, "found": found}


def invoke(op, args):
    if op != "run":
        return {"ok": False, "error": {"code": "unsupported_op", "message": f"there is no operation {op}"}}
    try:
        return {"ok": True, "result": run(**args)}
    except (TypeError, OSError, ValueError) as e:
        return {"ok": False, "error": {"code": "bad_request", "message": str(e)}}


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = DESCRIPTION
    else:
        reply = invoke(request["op"], request.get("args", {}))
    print(json.dumps(reply), flush=True)
