"""A real daemon for tests: the program that NOUSED names, with a state of its own."""

import json
import os
import signal
import subprocess
import tempfile
import threading

PROGRAM = os.environ.get("NOUSED", "noused")


def outside(command):
    """A text that has the offline model run a command outside the sandbox, which asks."""
    return "!bash " + json.dumps({"command": command, "outside_sandbox": True, "reason": "the sandbox has refused it"})


class Daemon:
    def __init__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="noused-client")
        self.dir = self._dir.name
        self.socket = os.path.join(self.dir, "s")
        self._work = os.path.join(self.dir, "work")
        os.mkdir(self._work)
        self.start()

    def start(self):
        """Starts it, and returns when it is ready."""
        folder = {"state-dir": "state", "tools-dir": "tools", "workdir": "work", "socket": "s"}
        args = [a for name, path in folder.items() for a in ("--" + name, os.path.join(self.dir, path))]
        env = os.environ | {"NOUSED_MODEL": "offline", "XDG_CONFIG_HOME": self.dir, "XDG_RUNTIME_DIR": self.dir}
        self.process = subprocess.Popen([PROGRAM, *args], env=env, stderr=subprocess.PIPE, text=True)
        log = []
        for line in self.process.stderr:
            log.append(line)
            if '"msg":"ready"' in line:
                self._rest = threading.Thread(target=self.process.stderr.read)
                self._rest.start()
                return
        raise AssertionError("the daemon ended before it was ready:\n" + "".join(log))

    def kill(self, signal=signal.SIGKILL):
        self.process.send_signal(signal)
        self.process.wait()
        self._rest.join()
        self.process.stderr.close()

    def restart(self, signal=signal.SIGKILL):
        self.kill(signal)
        self.start()

    def close(self):
        self.kill()
        self._dir.cleanup()
