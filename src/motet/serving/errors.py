"""The error of a request: its HTTP status and one sentence."""

from __future__ import annotations

from motet.errors import MotetError


class RequestError(MotetError):
    """A request that is refused with HTTP status `status`; `retry_after` is in seconds, 0 if a repetition would fail
    too."""

    def __init__(self, status: int, message: str, retry_after: int = 0) -> None:
        self.status = status
        self.retry_after = retry_after
        super().__init__(message)
