#!/usr/bin/env python3
"""Notes in the working directory: a gevals extension (protocol 0.0.1).

Speaks JSON-RPC 2.0, one JSON object per line, until shutdown or the end of
stdin, so that one call can also be made from a shell:

  echo '{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"find","args":{},"context":{"workdir":".","phase":"setup"}}}' | ./notes.py
"""
import json
import sys
from datetime import date
from pathlib import Path

MANIFEST = {
    "name": "notes",
    "version": "1.0.0",
    "protocolVersion": "0.0.1",
    "description": "Keeps short notes in notes.md",
    "operations": {
        "add": {
            "description": "Append a note to the working directory's notes",
            "params": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 1, "description": "The note, one line"},
                    "tag": {"type": "string", "default": "note", "description": "What kind of note it is"},
                },
                "required": ["text"],
                "additionalProperties": False,
            },
        },
        "find": {
            "description": "Return the notes that contain a word, newest last",
            "params": {
                "type": "object",
                "properties": {
                    "word": {"type": "string", "default": "", "description": "Empty finds every note"},
                    "limit": {"type": "integer", "minimum": 1, "default": 20},
                },
                "additionalProperties": False,
            },
        },
    },
}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def log(message):
    send(method="log", params={"level": "info", "message": message})


def add(file, text, tag="note"):
    with file.open("a") as f:
        f.write(f"- {date.today()} [{tag}] {' '.join(text.split())}\n")
    log(f"wrote {file}")
    return "Noted.", {"file": str(file)}


def find(file, word="", limit=20):
    notes = file.read_text().splitlines() if file.exists() else []
    log(f"looking through {len(notes)} notes")
    hits = [n for n in notes if word.lower() in n.lower()]
    return "\n".join(hits[-limit:]) or "No note has that.", {"count": str(len(hits))}


OPERATIONS = {"add": add, "find": find}


def execute(params):
    file = Path(params["context"]["workdir"]) / "notes.md"
    try:
        message, outputs = OPERATIONS[params["operation"]](file, **params["args"])
    except OSError as e:
        return {"success": False, "error": str(e)}
    return {"success": True, "message": message, "outputs": outputs}


def answer(method, params):
    if method == "initialize":
        return {"result": MANIFEST}
    if method == "shutdown":
        return {"result": {}}
    if method != "execute" or params.get("operation") not in OPERATIONS:
        return {"error": {"code": -32601, "message": f"Unknown method or operation: {params.get('operation', method)}"}}
    try:
        return {"result": execute(params)}
    except (KeyError, TypeError) as e:
        return {"error": {"code": -32602, "message": str(e)}}


for line in sys.stdin:
    if not line.strip():
        continue
    try:
        request = json.loads(line)
    except ValueError as e:
        send(id=None, error={"code": -32700, "message": str(e)})
        continue
    if "id" in request:  # a message without one is a notification
        send(id=request["id"], **answer(request["method"], request.get("params", {})))
    if request.get("method") == "shutdown":
        break
