#!/usr/bin/env python3
"""Converts units: an Amplifier module of kind tool, over stdio.

One JSON object a line comes in, one goes out: health, describe, invoke.
"""
import json
import sys

METRES = {"m": 1, "km": 1000, "ft": 0.3048, "mi": 1609.344}


def length(value, unit, to):
    return {"value": value * METRES[unit] / METRES[to], "unit": to}


def temperature(value, unit):
    return {"value": value * 9 / 5 + 32, "unit": "F"} if unit == "C" else {"value": (value - 32) * 5 / 9, "unit": "C"}


def params(**properties):
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


NUMBER, UNIT = {"type": "number"}, {"enum": list(METRES)}
OPERATIONS = {"length": length, "temperature": temperature}
DESCRIPTION = {
    "name": "units", "version": "1.0.0", "kind": "tool", "capabilities": list(OPERATIONS),
    "inputs": {"length": params(value=NUMBER, unit=UNIT, to=UNIT),
               "temperature": params(value=NUMBER, unit={"enum": ["C", "F"]})},
    "outputs": {"length": params(value=NUMBER, unit=UNIT)},
}


def failure(code, message):
    return {"ok": False, "error": {"code": code, "message": message}}


def invoke(op, args):
    if op not in OPERATIONS:
        return failure("unsupported_op", f"there is no operation {op}")
    try:
        return {"ok": True, "result": OPERATIONS[op](**args)}
    except (TypeError, KeyError) as e:
        return failure("bad_request", str(e))


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = DESCRIPTION
    else:
        reply = invoke(request["op"], request.get("args", {}))
    print(json.dumps(reply), flush=True)
