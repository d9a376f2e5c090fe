"""A token for people on other machines: made here, shown once, exchanged for a cookie; wrong ones are slowed down.

Only digests are kept, and only in memory: a new start has a new token, and old cookies open nothing.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field

from fscl.serve.refusals import Refusal

COOKIE = "fscl_session"
SESSION_SECONDS = 30 * 24 * 3600
MAX_SESSIONS = 1000
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds after a wrong token; doubled each time
MAX_WAITING = 8  # wrong tokens whose answer is being held back


@dataclass
class Tokens:
    """One token, and the sessions that it has opened."""

    digest: bytes
    sessions: dict[bytes, float] = field(default_factory=dict)
    n_wrong: int = 0
    n_waiting: int = 0
    first_pause: float = FIRST_PAUSE

    @classmethod
    def made(cls) -> tuple["Tokens", str]:
        """A new token, to be shown once."""
        token = secrets.token_urlsafe(32)
        return cls(_digest(token)), token

    async def is_right(self, token: str) -> bool:
        """Whether it is the token; the answer to a wrong one takes longer every time."""
        if hmac.compare_digest(_digest(token), self.digest):
            self.n_wrong = 0
            return True
        if self.n_waiting >= MAX_WAITING:
            raise Refusal("too_many", "too many wrong tokens at once; wait a while.", {"Retry-After": "10"})
        pause = min(LONGEST_PAUSE, self.first_pause * 2 ** min(self.n_wrong, 10))
        self.n_wrong += 1
        self.n_waiting += 1
        try:
            await asyncio.sleep(pause)
        finally:
            self.n_waiting -= 1
        return False

    def opened(self) -> str:
        """A new session."""
        now = time.monotonic()
        self.sessions = {key: until for key, until in self.sessions.items() if until > now}
        while len(self.sessions) >= MAX_SESSIONS:
            self.sessions.pop(next(iter(self.sessions)))
        session = secrets.token_urlsafe(32)
        self.sessions[_digest(session)] = now + SESSION_SECONDS
        return session

    def is_open(self, session: str) -> bool:
        """Whether a session was opened here, and has not ended."""
        return self.sessions.get(_digest(session), 0.0) > time.monotonic()

    def close(self, session: str) -> None:
        """End a session."""
        self.sessions.pop(_digest(session), None)


def _digest(words: str) -> bytes:
    return hashlib.sha256(words.encode("utf-8", "surrogateescape")).digest()
