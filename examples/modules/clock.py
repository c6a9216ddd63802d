#!/usr/bin/env python3
"""Tells the time: an Amplifier module of kind tool, over HTTP.

The daemon does not start it; it must be running already:

  ./clock.py 7711 &          # the url of clock.json: http://127.0.0.1:7711
  ./clock.py /tmp/clock &    # or a Unix socket, with the url unix:///tmp/clock

POST /health, /describe and /invoke get one JSON object and return one.
"""
import json
import socketserver
import sys
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DESCRIPTION = {
    "name": "clock", "version": "1.0.0", "kind": "tool", "capabilities": ["now"],
    "inputs": {"now": {"type": "object", "properties": {"utc": {"type": "boolean", "default": False}}}}, "outputs": {},
}


def invoke(op=None, args=None, **_):
    if op != "now":
        return {"ok": False, "error": {"code": "unsupported_op", "message": f"there is no operation {op}"}}
    now = datetime.now(timezone.utc if (args or {}).get("utc") else None)
    return {"ok": True, "result": {"now": now.isoformat(timespec="seconds")}}


ANSWERS = {"/health": lambda **_: {"status": "ok"}, "/describe": lambda **_: DESCRIPTION, "/invoke": invoke}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = ANSWERS.get(self.path)
        text = json.dumps(answer(**json.loads(body or "{}")) if answer else {}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


where = sys.argv[1]
if where.isdigit():
    server = ThreadingHTTPServer(("127.0.0.1", int(where)), Handler)
else:
    server = socketserver.ThreadingUnixStreamServer(where, Handler)
print(f"listening on {where}", flush=True)
server.serve_forever()
