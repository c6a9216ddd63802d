"""The approvals that the runs of one client wait for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ._events import AsyncEvents
from ._wire import Error
from .types import StatusApproval

if TYPE_CHECKING:
    from ._async import AsyncClient

T = TypeVar("T")

Answer = str | dict[str, Any]
AsyncOnApproval = Callable[[StatusApproval], Answer | Awaitable[Answer]]


class Approvals:
    """Asks the callback about each approval of the sessions that the client has sent a text to."""

    def __init__(self, client: AsyncClient, callback: AsyncOnApproval) -> None:
        self._client, self._callback = client, callback
        self._sessions: set[str] = set()
        self._asked: dict[str, asyncio.Task[None]] = {}  # by approval, until it is known to be resolved
        self._ending: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Future[Any], str] = {}  # who waits for a run of which session
        self._following: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def guard(self, session: str, sending: Coroutine[Any, Any, T]) -> T:
        """Sends a text. It fails, too, when the callback does: the approval stays open then."""
        sent: asyncio.Task[T] = asyncio.create_task(sending)
        failed: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[failed] = session
        try:
            await asyncio.wait((sent, failed), return_when=asyncio.FIRST_COMPLETED)
            return failed.result() if failed.done() else sent.result()
        finally:
            del self._waiting[failed]
            sent.cancel()
            await asyncio.gather(sent, return_exceptions=True)

    async def watch(self, session: str) -> None:
        """Returns once no later approval of the session can be missed."""
        async with self._beginning:
            if self._following is None or self._following.done():
                await self._begin()
        if session not in self._sessions:
            self._sessions.add(session)
            await self._look(session)

    async def _begin(self) -> None:
        events = self._client.events(types=["status", "warning"])
        try:
            await events.__aenter__()
        except BaseException:
            await events.close()
            raise
        self._following = asyncio.create_task(self._follow(events))
        self._sessions.clear()

    async def close(self) -> None:
        tasks = [t for t in (self._following, *self._asked.values(), *self._ending) if t]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, events: AsyncEvents) -> None:
        async with events:
            with suppress(Error):  # the daemon stays away, as those who wait for a run learn, too
                async for event in events:
                    await self._apply(event["payload"])

    async def _apply(self, payload: Any) -> None:
        match payload["code"]:
            case "approval_requested" if payload["session_id"] in self._sessions:
                self._ask({"session_id": payload["session_id"], "run_id": payload["run_id"]} | payload["approval"])
            case "approval_resolved" if asked := self._asked.pop(payload["approval_id"], None):
                self._ending.add(asked)
                asked.add_done_callback(self._ending.discard)
                asked.cancel()
            case "events_dropped":
                for session in tuple(self._sessions):
                    await self._look(session)

    async def _look(self, session: str) -> None:
        """Asks what the session waits for already."""
        try:
            state = await self._client._send("get_state", {"session_id": session})
        except Error as e:
            self._sessions.discard(session)
            if e.code != "session_not_found":
                raise
            return
        for approval in state.get("pending_approvals", ()):
            if approval["session_id"] == session:
                self._ask(approval)

    def _ask(self, approval: Any) -> None:
        id = approval["approval_id"]
        if id not in self._asked:  # a restarted daemon asks again
            self._asked[id] = asyncio.create_task(self._answer(approval))

    async def _answer(self, approval: Any) -> None:
        session = approval["session_id"]
        try:
            answer = self._callback(approval)
            if inspect.isawaitable(answer):
                answer = await answer
            fields = answer if isinstance(answer, dict) else {"option": answer}
            where = {"session_id": session, "approval_id": approval["approval_id"]}
            await self._client._send("approve", where | fields)
        except Exception as e:
            if isinstance(e, Error) and e.says("approval_resolved", "no_such_approval"):
                return  # somebody else was faster
            waiting = [f for f, s in self._waiting.items() if s == session and not f.done()]
            for failed in waiting:
                failed.set_exception(e)
            if not waiting:
                asyncio.get_running_loop().call_exception_handler({"message": "on_approval failed", "exception": e})
