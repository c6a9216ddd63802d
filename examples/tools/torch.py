#!/usr/bin/env python3
"""A torch for a story: a Narratoria tool (version "0"), one process per call.

One JSON line comes in on stdin; events go out on stdout, one JSON object each.
"""
import json
import sys
from pathlib import Path


def emit(type, **fields):
    print(json.dumps({"version": "0", "type": type, **fields}), flush=True)


def picture(lit):
    flame = '<path d="M50 8 q22 26 0 44 q-22 -18 0 -44" fill="orange"/>' if lit else ""
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 120">{flame}<rect x="44" y="52" width="12" height="60" fill="saddlebrown"/></svg>\n'


def main():
    call = json.loads(sys.stdin.readline())
    args, lit = call["input"], call["operation"] == "light"
    where = args["where"]
    emit("log", level="info", message=f"{'Striking a match' if lit else 'Reaching for the bucket'} in the {where}")

    file = Path("torch.svg")
    try:
        file.write_text(picture(lit))
    except OSError as e:
        emit("error", errorCode="cannot_draw", errorMessage=str(e))
        emit("done", ok=False, summary="The torch could not be drawn.")
        return
    emit("asset", assetId="torch", kind="image", mediaType="image/svg+xml", path=str(file))

    emit("state_patch", patch={"torches": {where: lit or None}})  # null removes it
    says = f"The torch in the {where} is {'lit' if lit else 'out'}."
    emit("ui_event", event="notify", payload={"message": says})
    emit("done", ok=True, summary=says)


main()
