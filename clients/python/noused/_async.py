"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ._approvals import Approvals, AsyncOnApproval
from ._events import AsyncEvents
from ._wire import Connection, Error, default_socket
from .types import AsyncCalls, SubscribeParams, Unpack

T = TypeVar("T")

TEXTS = ("prompt", "steer", "follow_up")  # what an idempotency key has done once
# What is not sent again when its answer is lost: it may have been done, and may do harm twice.
ONCE = (
    "extension_command", "call_tool", "compact_session", "shutdown", "delete_session", "withdraw", "branch_session",
)
# What takes as long as what it does.
LATE = ("extension_command", "call_tool", "compact_session", "prune", "get_changes", "rewind", "undo_rewind")
ANSWER = 30.0  # seconds for the answer to everything else
PAUSE, MAX_PAUSE = 0.02, 0.5  # seconds between tries
MAX_SENDS = 100  # of one command


class AsyncClient(AsyncCalls):
    """A connection to the daemon that comes back by itself.

    on_approval is asked, with what get_state has in pending_approvals, about what runs of
    the sessions wait for that this client has sent a text to, for as long as it takes. It
    returns an option's id, or a dict of it and what else approve takes, {"option": "deny",
    "reason": "use a branch"}; it may be a coroutine function, which is cancelled when
    somebody else answers. Without on_approval a prompt denies what its run would ask.

    A daemon that was there and went away is waited for, reconnect seconds; one that is not
    there at first is an Error at once.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        on_approval: AsyncOnApproval | None = None,
        *,
        reconnect: float = 30.0,
    ) -> None:
        self._path = os.fspath(socket) if socket is not None else default_socket()
        self._reconnect = reconnect
        self._approvals = Approvals(self, on_approval) if on_approval else None
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._streams: set[AsyncEvents] = set()
        self._met = False  # a daemon has answered
        self._stop = asyncio.Event()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections, and what waits on them with the Error closed. Runs go on."""
        self._stop.set()
        if self._approvals:
            await self._approvals.close()
        for stream in tuple(self._streams):
            await stream.close()
        async with self._connecting:
            if self._connection:
                await self._connection.close()

    async def prompt(self, text: str, *, session_id: str | None = None, **more: Any) -> str:
        """Starts a run with a text and returns its answer, however often the daemon restarts meanwhile.

        more is what the command prompt takes besides. A run that somebody aborts is the
        Error aborted, one that fails provider_error.
        """
        if self._approvals is None:
            more.setdefault("approvals", "deny")
        reply = await self._call("prompt", {"text": text, "session_id": session_id, **more, "wait": True})
        if await self._was_aborted(reply):
            raise Error("aborted", f"run {reply['run_id']} was aborted")
        return reply["output"]

    def events(self, **where: Unpack[SubscribeParams]) -> AsyncEvents:
        """The events from now on, of one session_id or of the types that are given, or all.

        What this client sends after it waits until the daemon has confirmed.
        """
        events = AsyncEvents(self, where)
        self._streams.add(events)
        return events

    async def _call(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._do(type, payload)
        except Error as e:  # whoever reads it wants their own line, not ours
            raise e.with_traceback(None) from None

    async def _do(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        payload = {k: v for k, v in payload.items() if v is not None}
        if begun := [s.subscribing for s in self._streams if not s.subscribing.done()]:
            await asyncio.wait(begun)
        if type not in TEXTS:
            return await self._send(type, payload)
        if "session_id" not in payload:  # another one may be the active one when it is sent again
            payload["session_id"] = (await self._send("get_state", {}))["session_id"]
        payload.setdefault("idempotency_key", str(uuid.uuid4()))
        if self._approvals is None:
            return await self._send(type, payload)
        await self._approvals.watch(payload["session_id"])
        return await self._approvals.guard(payload["session_id"], self._send(type, payload))

    async def _send(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Sends a command, and again where the daemon went away without doing it, or it can be done twice."""
        late = type in LATE or type == "prompt" and payload.get("wait", True)
        once = type in ONCE or type == "abort" and "run_id" not in payload
        once = once or type in ("rewind", "undo_rewind") and not payload.get("dry_run")
        sends = 0
        while True:
            connection = await self._connect()
            try:
                return await connection.request(type, payload, None if late else ANSWER)
            except Error as e:
                sends += 1
                going = e.says("shutting_down") and not (once and e.cause == "it had begun")
                if sends >= MAX_SENDS or not going and (once or e.code != "connection_lost"):
                    raise
            if going:
                await self._pause(MAX_PAUSE)

    async def _connect(self) -> Connection:
        async with self._connecting:
            if self._connection is None or self._connection.lost:
                self._connection = await self._patiently(lambda: Connection.open(self._path))
            return self._connection

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Connects, and tries again while a daemon that was there is away."""
        now = asyncio.get_running_loop().time
        until = now() + (self._reconnect if self._met else 0)
        pause = PAUSE
        while True:
            if self._stop.is_set():
                raise Error("closed", "the client is closed")
            try:
                made = await attempt()
                self._met = True
                return made
            except Error as e:
                away = e.code in ("no_daemon", "connection_lost", "timeout") or e.says("shutting_down")
                if not away or now() + pause > until:
                    raise
            await self._pause(pause)
            pause = min(2 * pause, MAX_PAUSE)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return
        raise Error("closed", "the client is closed")

    async def _was_aborted(self, reply: dict[str, Any]) -> bool:
        last = reply["events"][-1] if reply["events"] else {}
        if last.get("type") == "agent_end":
            return last["payload"]["stop_reason"] == "aborted"
        newest = await self._send("get_messages", {"session_id": reply["session_id"], "limit": 1})
        ended = {run["run_id"]: run["stop_reason"] for run in newest.get("runs", ())}
        return ended.get(reply["run_id"]) == "aborted"
