#!/usr/bin/env python3
"""Shows a notification on the desktop, with notify-send.

  [notify]
  command = ["/path/to/desktop.py"]
"""
import json
import subprocess
import sys

word = json.load(sys.stdin)
more = f" (and {word['count'] - 1} more)" if word["count"] > 1 else ""
urgency = "normal" if word["event"] == "run_end" else "critical"
sys.exit(subprocess.call(["notify-send", "--app-name=noused", f"--urgency={urgency}", "--", word["message"] + more, word["workdir"]]))
