"""What a request is refused with: a status, a kind for programs, and a sentence for people, the command line's."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sklearn.exceptions import NotFittedError
from starlette.requests import ClientDisconnect

from fscl.classifier.settings import first_fault
from fscl.errors import DataError, Divergence, FsclError, Interrupted, MisuseError, ModelBusy, StorageError

STATUS: dict[str, int] = {
    "token": 401,
    "forbidden": 403,
    "read_only": 403,
    "not_found": 404,
    "method": 405,
    "stale": 409,
    "no_model": 409,
    "untaught": 409,
    "stopped": 409,
    "too_large": 413,
    "unsupported": 415,
    "misuse": 422,
    "data": 422,
    "too_many": 429,
    "storage": 500,
    "internal": 500,
    "busy": 503,
}
_KINDS: tuple[tuple[type[FsclError], str], ...] = (
    (MisuseError, "misuse"),
    (DataError, "data"),
    (Divergence, "data"),
    (ModelBusy, "busy"),
    (Interrupted, "stopped"),
    (StorageError, "storage"),
)
RETRY_SECONDS = "1"

log = logging.getLogger("fscl.serve")


@dataclass
class Refusal(Exception):
    """A request that is not done."""

    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    def content(self) -> dict[str, Any]:
        """As JSON."""
        return {"error": {"kind": self.kind, "message": self.message}}


def refusal_of(error: BaseException) -> Refusal:
    """What anything that went wrong is answered with; what nobody foresaw goes to the log, and its text to nobody."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ValidationError):
        name, value, rule = first_fault(error)
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:80] + "…"
        return Refusal("misuse", f"{name or 'the body'} cannot be {shown}: {rule}.")
    if isinstance(error, NotFittedError):
        return Refusal("untaught", "nothing is learned yet; teach a class first.")
    for expected, kind in _KINDS:
        if isinstance(error, expected):
            headers = {"Retry-After": RETRY_SECONDS} if kind == "busy" else {}
            return Refusal(kind, str(error), headers)
    if isinstance(error, FsclError):
        return Refusal("misuse", str(error))
    if isinstance(error, ClientDisconnect):  # nobody hears this, and it is no fault of ours
        return Refusal("misuse", "the connection ended before the body did; send it again.")
    log.error("a request failed", exc_info=error)
    return Refusal("internal", "something went wrong inside; the server's log says what. Nothing was changed.")
