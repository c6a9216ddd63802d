#!/usr/bin/env python3
"""Rings the bell of terminals: those that are named, else all that are yours.

  [notify]
  command = ["/path/to/bell.py"]
"""
import glob
import os
import sys

sys.stdin.read()  # what it is about does not change the sound
rung = 0
for path in sys.argv[1:] or glob.glob("/dev/pts/[0-9]*"):
    try:
        if os.stat(path).st_uid == os.getuid():
            with open(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK), "wb") as terminal:
                terminal.write(b"\a")
            rung += 1
    except OSError:
        continue  # it was closed just now
sys.exit(0 if rung else "there is no terminal to ring")
