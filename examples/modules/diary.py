#!/usr/bin/env python3
"""A hook (Amplifier module, stdio): it is told what happens.

on_event gets one Amplifier Event. It must answer at once; a hook that has real
work to do answers first. This one writes a line to diary.txt in the working
directory, or to the file that DIARY names.
"""
import json
import os
import sys
from datetime import datetime

DESCRIPTION = {
    "name": "diary", "version": "1.0.0", "kind": "hook", "capabilities": ["on_event"],
    "inputs": {"on_event": {"type": "object", "required": ["id", "ts", "event", "component"]}}, "outputs": {},
}
diary = open(os.environ.get("DIARY", "diary.txt"), "a", buffering=1)


def on_event(event, ts, module=None, status=None, session_id=None, **_):
    when = datetime.fromtimestamp(ts).isoformat(timespec="seconds")
    diary.write(" ".join(str(w) for w in (when, event, module, status, session_id) if w) + "\n")


def invoke(op, args):
    if op != "on_event":
        return {"ok": False, "error": {"code": "unsupported_op", "message": f"there is no operation {op}"}}
    return {"ok": True, "result": on_event(**args)}  # null is a result


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = DESCRIPTION
    else:
        reply = invoke(request["op"], request.get("args", {}))
    print(json.dumps(reply), flush=True)
