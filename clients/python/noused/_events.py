"""The daemon's events, over any number of connections."""

from __future__ import annotations

import asyncio
import socket
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ._wire import HELLO, Error, Lines, connect, encode, result
from .types import Event, SubscribeParams

if TYPE_CHECKING:
    from ._async import AsyncClient


class AsyncEvents:
    """The events from now on, each once and in order, also over restarts of the daemon.

    Where events are missing (the daemon was restarted, or they were read too slowly), a
    warning with the code events_dropped stands in their place: get_state and get_messages
    have what they said. epoch and last say how far has been read; given to a later events()
    as epoch and after, it goes on there.
    """

    def __init__(self, client: AsyncClient, where: SubscribeParams) -> None:
        self.epoch, self.last = where.get("epoch", ""), where.get("after", 0)
        self._client, self._where = client, where
        self._sock: socket.socket | None = None
        self._lines: Lines | None = None
        self._gap = self._reading = False
        self.closed = False
        self.subscribing = asyncio.create_task(client._patiently(self._subscribe))

    async def __aenter__(self) -> AsyncEvents:
        """Waits until the daemon has confirmed: no later event is missed."""
        await self._subscribed()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Event:
        if self.closed:
            raise StopAsyncIteration
        self._reading = True
        try:
            await self._subscribed()
            return await self._next()
        except Error:
            if self.closed:
                raise StopAsyncIteration from None
            raise
        finally:
            self._reading = False
            if self.closed:
                self._hang_up()

    async def close(self) -> None:
        self.closed = True
        self._client._streams.discard(self)
        self.subscribing.cancel()
        await asyncio.gather(self.subscribing, return_exceptions=True)
        if self._sock and self._reading:
            self._sock.shutdown(socket.SHUT_RDWR)  # who reads hangs up
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._sock:
            self._sock.close()
        self._sock = self._lines = None

    async def _subscribed(self) -> None:
        try:
            await asyncio.shield(self.subscribing)
        except asyncio.CancelledError:
            if self.closed:
                raise Error("closed", "the events are closed") from None
            raise

    async def _next(self) -> Event:
        while True:
            if self._lines is None:
                await self._client._patiently(self._subscribe)
            if self.closed:
                raise Error("closed", "the events are closed")
            if self._gap:
                self._gap = False
                return self._missed()
            try:
                event: Any = await self._lines.next()  # type: ignore[union-attr]
                if not (isinstance(event.get("seq"), int) and isinstance(event.get("payload"), dict)):
                    raise Error("invalid_reply", "an event has no seq or no payload")
            except Error as e:
                self._hang_up()
                if e.code != "connection_lost" or self.closed:
                    raise
                continue
            self.last = event["seq"]
            return event

    async def _subscribe(self) -> None:
        """Subscribes where the last connection ended."""
        if self.closed:
            raise Error("closed", "the events are closed")
        where = dict(self._where)
        if self.epoch:
            where.update(epoch=self.epoch, after=self.last)
        sock = await connect(self._client._path + ".events")
        try:
            lines = Lines(sock)
            async with asyncio.timeout(HELLO):
                await asyncio.get_running_loop().sock_sendall(sock, encode("s1", "subscribe", where))
                while (reply := await lines.next()).get("id") not in ("s1", ""):
                    pass  # what came before is in what was asked for
            match result(reply):
                case {"gap": bool(gap), "epoch": str(epoch), "next_seq": int(following)}:
                    pass
                case _:
                    raise Error("invalid_reply", "the answer to subscribe has no gap, epoch or next_seq")
        except BaseException as e:
            sock.close()
            if isinstance(e, TimeoutError):
                raise Error("timeout", f"the daemon has not answered subscribe for {HELLO:g} s") from None
            if isinstance(e, OSError):
                raise Error("connection_lost", f"connection to the daemon lost ({e.strerror})") from None
            raise
        self._sock, self._lines, self._gap = sock, lines, gap
        self.epoch, self.last = epoch, following - 1

    def _missed(self) -> Event:
        message = "events are missing: the daemon was restarted, or no longer has them; see get_state and get_messages"
        return {
            "v": "1", "id": "", "type": "warning", "ts": datetime.now(timezone.utc).isoformat(),
            "payload": {"code": "events_dropped", "message": message},
        }
