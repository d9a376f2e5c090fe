"""Server-sent events: open pages are told that a new state is there, and how far work is."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

MAX_LISTENERS = 100
MAX_BEHIND = 200  # events that a slow listener may be behind before it is let go; the page connects again
KEEP_ALIVE_SECONDS = 15.0


class Listener:
    """One open page."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(self, event: bytes | None) -> None:
        """From any thread."""
        if self.waiting.qsize() < MAX_BEHIND or event is None:
            self.loop.call_soon_threadsafe(self.waiting.put_nowait, event)
        else:
            self.loop.call_soon_threadsafe(self.waiting.put_nowait, None)


class Hub:
    """Tells every listener what happens; from any thread."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def n_listeners(self) -> int:
        return len(self._listeners)

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Tell everyone."""
        event = encode(kind, content)
        with self._lock:
            for listener in self._listeners:
                if not listener.loop.is_closed():
                    listener.put(event)

    def close(self) -> None:
        """Let everyone go."""
        with self._lock:
            self._closed = True
            for listener in self._listeners:
                if not listener.loop.is_closed():
                    listener.put(None)

    def join(self) -> Listener | None:
        """A new listener, who hears what is published from now on; None where there are too many."""
        with self._lock:
            if self._closed or len(self._listeners) >= MAX_LISTENERS:
                return None
            listener = Listener(asyncio.get_running_loop())
            self._listeners.add(listener)
            return listener

    async def heard(self, listener: Listener, first: bytes) -> AsyncIterator[bytes]:
        """What a listener hears, from `first` on, until one side leaves."""
        try:
            yield first
            while True:
                try:
                    event = await asyncio.wait_for(listener.waiting.get(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            with self._lock:
                self._listeners.discard(listener)


def encode(kind: str, content: dict[str, Any]) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n".encode()
