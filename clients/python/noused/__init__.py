"""A client for noused, a daemon that runs AI agents.

    with noused.Client() as client:
        print(client.prompt("what does this folder hold?"))

Client is for ordinary programs, AsyncClient for asyncio. Both connect again by themselves
when the daemon went away, and send a text again that it did not answer: it runs once. They
refuse to start a daemon and to keep anything on the disk.
"""

from ._async import AsyncClient
from ._events import AsyncEvents
from ._sync import Client, Events
from ._wire import Error, default_socket

Error.__module__ = __name__  # as it is imported

__all__ = ["AsyncClient", "AsyncEvents", "Client", "Error", "Events", "default_socket"]
