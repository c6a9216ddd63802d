#!/usr/bin/env python3
"""Asks the daemon something, as nous prompt does: python3 ask.py TEXT

Tool calls are shown on standard error as they are made. What needs an approval is asked
there, too. The answer goes to standard output.
"""

import json
import sys
import threading

import noused


def approve(approval):
    print(f"{approval.get('tool_name', approval['kind'])} asks ({approval['rule']}):", file=sys.stderr)
    print(json.dumps(approval.get("arguments"), indent=2), file=sys.stderr)
    for option in approval["options"]:
        print(f"  {option['id']}: {option['decision']} {option.get('pattern', '')}", file=sys.stderr)
    return sys.stdin.readline().strip() or "deny"


def show(events):
    for event in events:
        if event["type"] == "tool_execution_start":
            print(f"[{event['payload']['tool_name']}]", file=sys.stderr)


def main():
    try:
        with noused.Client(on_approval=approve) as client:
            events = client.events(types=["tool_execution_start"])
            threading.Thread(target=show, args=(events,)).start()
            print(client.prompt(" ".join(sys.argv[1:])))
    except noused.Error as e:
        sys.exit(f"ask.py: {e}")


main()
