"""Lines of JSON over the daemon's two sockets: one connection, and no word of sessions."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import struct
from typing import Any

MAX_COMMAND = 16 << 20  # bytes of a line to the daemon (its --max-line)
MAX_REPLY = 128 << 20  # and from it: of a conversation it sends 64 MiB at once
MAX_PATH = 107  # bytes of a socket's path
HELLO = 5.0  # seconds for a daemon's first sign of life


class Error(Exception):
    """What the daemon refuses, or what is wrong on the way to it.

    code is the protocol's, see Errors in docs/protocol.md; or no_daemon (nobody listens
    there), connection_lost, timeout (the daemon does not answer), untrusted (another user
    could be listening), invalid_reply (it is no noused), aborted (the run was), closed (this
    client is).
    """

    def __init__(self, code: str, message: str, cause: str = "") -> None:
        super().__init__(code, message, cause)
        self.code, self.message, self.cause = code, message, cause

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.cause})" if self.cause else "")

    def says(self, *reasons: str) -> bool:
        """Whether the message begins with one of the protocol's words, such as no_active_run."""
        return self.message.split(":")[0] in reasons


def default_socket() -> str:
    """NOUSED_SOCKET, else where a daemon listens that was told nothing else."""
    if path := os.environ.get("NOUSED_SOCKET"):
        return path
    if folder := os.environ.get("XDG_RUNTIME_DIR"):
        return os.path.join(folder, "noused", "noused.sock")
    return f"/tmp/noused-{os.getuid()}/noused.sock"


async def connect(path: str) -> socket.socket:
    """Connects to a socket where nobody but this user and root can be listening."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise Error("no_daemon", f"{path} is longer than the {MAX_PATH} bytes of a socket's path")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _check_owner(path)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, path)
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", peer)[1]
        if uid not in (os.geteuid(), 0):
            raise Error("untrusted", f"user {uid} listens at {path}, not you")
    except OSError as e:
        sock.close()
        raise Error("no_daemon", f"no daemon at {path} ({e.strerror}): any nous command starts one") from None
    except BaseException:
        sock.close()
        raise
    return sock


def _check_owner(path: str) -> None:
    folder, us = os.path.dirname(os.path.abspath(path)), (os.geteuid(), 0)
    for place in (folder, path):
        if (owner := os.stat(place).st_uid) not in us:
            raise Error("untrusted", f"{place} belongs to user {owner}, neither to you nor to root")
    mode = os.stat(folder).st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise Error("untrusted", f"others may write to {folder} (mode {mode & 0o7777:04o})")


def encode(id: str, type: str, payload: Any) -> bytes:
    line = json.dumps({"v": "1", "id": id, "type": type, "payload": payload}, separators=(",", ":"), allow_nan=False)
    encoded = line.encode() + b"\n"
    if len(encoded) > MAX_COMMAND:
        raise Error("invalid_command", f"line_too_long: {type} has {len(encoded)} bytes, a line at most {MAX_COMMAND}")
    return encoded


def result(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply's payload. An error reply is raised."""
    if reply.get("ok") and isinstance(reply.get("payload"), dict):
        return reply["payload"]
    raise _error(reply.get("error"))


def _error(error: Any) -> Error:
    match error:
        case {"code": str(code), "message": str(message)}:
            return Error(code, message, str(error.get("cause", "")))
    return Error("invalid_reply", "the reply is neither ok nor an error")


class Lines:
    """Reads a connection when it is asked to: what nobody asks for stays with the daemon."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._read, self._searched = sock, bytearray(), 0

    async def next(self) -> dict[str, Any]:
        while (end := self._read.find(b"\n", self._searched)) < 0:
            self._searched = len(self._read)
            if self._searched > MAX_REPLY:
                raise Error("invalid_reply", f"a line of the daemon's is longer than {MAX_REPLY} bytes")
            try:
                some = await asyncio.get_running_loop().sock_recv(self._sock, 1 << 16)
            except OSError as e:
                raise Error("connection_lost", f"connection to the daemon lost ({e.strerror})") from None
            if not some:
                raise Error("connection_lost", "connection to the daemon lost")
            self._read += some
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        self._searched = 0
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise Error("invalid_reply", "what listens there does not speak the protocol of noused")
        return value


class Connection:
    """A connection to the command socket. Any number of requests may wait on it."""

    def __init__(self, sock: socket.socket) -> None:
        self.lost: Error | None = None
        self._sock, self._last = sock, 0
        self._pending: dict[str, tuple[int, asyncio.Future[dict[str, Any]]]] = {}
        self._stray: Error | None = None  # what the daemon said to no request
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._running = asyncio.create_task(self._run())

    @classmethod
    async def open(cls, path: str) -> Connection:
        """Connects to a daemon that answers."""
        conn = cls(await connect(path))
        try:
            await conn.request("ping", {}, HELLO)
        except BaseException as e:
            await conn.close()
            if isinstance(e, Error) and e.code == "connection_lost":
                raise Error(e.code, f"the daemon at {path} hung up at once: its log says why") from None
            raise
        return conn

    async def request(self, type: str, payload: dict[str, Any], limit: float | None) -> dict[str, Any]:
        """Sends a command and returns its reply's payload, within limit seconds."""
        if self.lost:
            raise self.lost
        self._last += 1
        id = f"c{self._last}"
        line = encode(id, type, payload)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[id] = len(line), answer
        self._out.put_nowait(line)
        try:
            async with asyncio.timeout(limit):
                return result(await answer)
        except TimeoutError:
            raise Error("timeout", f"the daemon has not answered {type} for {limit:g} s") from None
        finally:
            self._pending.pop(id, None)

    async def close(self) -> None:
        if not self.lost:
            self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        writing, lines = asyncio.create_task(self._write()), Lines(self._sock)
        why = Error("closed", "the client is closed")
        try:
            while True:
                self._deliver(await lines.next())
        except Error as e:
            why = self._stray or e
        finally:
            self.lost = why
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._sock.close()
            for _, answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(why)

    async def _write(self) -> None:
        while True:
            # A write that fails ends nothing: the daemon may have said why it hung up.
            await asyncio.get_running_loop().sock_sendall(self._sock, await self._out.get())

    def _deliver(self, reply: dict[str, Any]) -> None:
        id = reply.get("id")
        if not isinstance(id, str):
            raise Error("invalid_reply", "a reply has no id")
        if id == "":  # an error about a line that could not be read: the longest
            id = max(self._pending, key=lambda id: self._pending[id][0], default=None)
        if waits := self._pending.get(id or ""):
            if not waits[1].done():
                waits[1].set_result(reply)
        elif error := reply.get("error"):
            self._stray = _error(error)
