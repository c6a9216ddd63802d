"""The client for programs without asyncio: the other one, on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ._approvals import Answer
from ._async import AsyncClient
from ._events import AsyncEvents
from ._wire import Error
from .types import Calls, Event, StatusApproval, SubscribeParams, Unpack

T = TypeVar("T")

OnApproval = Callable[[StatusApproval], Answer]


class Client(Calls):
    """AsyncClient for threads: any of them may call any method.

    on_approval is called on a thread of its own and may block; what it returns after somebody
    else has answered is ignored.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        on_approval: OnApproval | None = None,
        *,
        reconnect: float = 30.0,
    ) -> None:
        self._client = AsyncClient(socket, _threaded(on_approval) if on_approval else None, reconnect=reconnect)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="noused client", daemon=True)
        self._closing = threading.Lock()
        self._thread.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections and the thread, and what waits on them with the Error closed. Runs go on."""
        with self._closing:
            if self._loop.is_closed():
                return
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def prompt(self, text: str, *, session_id: str | None = None, **more: Any) -> str:
        """Starts a run with a text and returns its answer, however often the daemon restarts meanwhile.

        more is what the command prompt takes besides. A run that somebody aborts is the
        Error aborted, one that fails provider_error.
        """
        return self._run(self._client.prompt(text, session_id=session_id, **more))

    def events(self, **where: Unpack[SubscribeParams]) -> Events:
        """The events from now on, of one session_id or of the types that are given, or all."""
        return Events(self, self._run(self._subscribe(where)))

    def _call(self, type: str, payload: dict[str, Any]) -> dict[str, Any]:
        return self._run(self._client._call(type, payload))

    async def _subscribe(self, where: SubscribeParams) -> AsyncEvents:
        events = self._client.events(**where)
        try:
            return await events.__aenter__()
        except BaseException:
            await events.close()
            raise

    async def _end(self) -> None:
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Error("closed", "the client is closed") from None
        try:
            return done.result()
        except Error as e:  # whoever reads it wants their own line, not ours
            raise e.with_traceback(None) from None
        except BaseException:  # KeyboardInterrupt, say
            done.cancel()
            raise


class Events:
    """AsyncEvents, for a loop without asyncio."""

    def __init__(self, client: Client, events: AsyncEvents) -> None:
        self._client, self._events = client, events

    @property
    def epoch(self) -> str:
        return self._events.epoch

    @property
    def last(self) -> int:
        return self._events.last

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        if self._events.closed:
            raise StopIteration
        event = self._client._run(self._next())
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        with suppress(Error):  # the client is closed, and so is this
            self._client._run(self._events.close())

    async def _next(self) -> Event | None:
        return await anext(self._events, None)


def _threaded(callback: OnApproval) -> Callable[[StatusApproval], Coroutine[Any, Any, Answer]]:
    async def ask(approval: StatusApproval) -> Answer:
        loop = asyncio.get_running_loop()
        returned: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def settle(*how: Any) -> None:
            if not returned.done():
                returned.set_result(how)

        def run() -> None:
            how: tuple[Any, BaseException | None]
            try:
                how = callback(approval), None
            except BaseException as e:
                how = None, e
            with suppress(RuntimeError):  # the client was closed meanwhile
                loop.call_soon_threadsafe(settle, *how)

        threading.Thread(target=run, name="noused approval", daemon=True).start()
        answer, error = await returned
        if error:
            raise error if isinstance(error, Exception) else RuntimeError("on_approval was ended") from error
        return answer

    return ask
