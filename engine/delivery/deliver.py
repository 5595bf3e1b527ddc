"""Handler that sends a task's data as an HTTP request; its answer decides what the task becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import urlsplit

from engine.delivery import network_errors, status_table
from engine.delivery.breaker import Breaker
from engine.delivery.http_client import Answer, HttpClient
from engine.delivery.network_errors import DeliveryError
from engine.delivery.request import parse_request
from engine.delivery.status_table import DONE, FATAL, Outcomes
from engine.destinations.destination import origin_of
from engine.model import Task
from engine.text.safe import safe_line
from engine.work.handlers import Context, Failed, Fatal, Lacking, Postponed, Retry

MAX_RESULT_CHARACTERS = 4096
"""Characters of an answer that are kept as the result, or as the details of a failure."""

MAX_REASON_CHARACTERS = 100

_READABLE = ("text/plain", "application/json", "application/problem+json")
"""Types of answers whose first line is an error text."""


class DeliverHandler:
    """Sends the request of each task of one kind."""

    def __init__(
        self,
        client: HttpClient,
        outcomes: Outcomes,
        timeout: float,
        breaker: Breaker | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`timeout` is the longest time for one request, in seconds; a task may ask for less."""
        self._client, self._outcomes, self._timeout = client, outcomes, timeout
        self._breaker, self._clock = breaker, clock

    def __call__(self, task: Task, context: Context) -> object:
        """Make one attempt; return status and beginning of the answer.

        Raises:
            Postponed: its destination is blocked or unhealthy, the failed attempt was a probe, or
                the worker cancelled it.
            Lacking: the worker has no descriptor or memory left for a request.
            Fatal: the data is no request, or the answer excludes further attempts.
            Failed: any other error, with its code in brackets before the text; Retry if the answer
                sets the time of the next attempt."""
        try:
            request = parse_request(context.data)
        except DeliveryError as error:
            raise Fatal(str(error)) from error
        origin = request.destination or _origin(request.url)
        breaker = self._breaker if origin else None
        is_probe = breaker.admit(origin) if breaker is not None else False
        answer: Answer | None = None
        failure: DeliveryError | None = None
        try:
            blocker = self._breaker
            answer = self._client.send(
                request.method,
                request.url,
                request.headers,
                request.body,
                min(self._timeout, request.timeout or self._timeout),
                is_cancelled=context.is_cancelled,
                why_blocked=(lambda origin: "") if blocker is None else blocker.why_blocked,
            )
            code, what = f"HTTP_{answer.status}", str(answer.status)
        except DeliveryError as error:
            if error.code == network_errors.CANCELLED:
                raise Postponed(self._clock(), str(error)) from error
            if error.code == network_errors.OWN_LIMIT:
                raise Lacking(str(error)) from error
            failure, code = error, error.code
            what = code
        outcome = status_table.outcome(self._outcomes, what)
        waits = self._record(breaker, origin, code, outcome, is_probe)
        if outcome == DONE:
            if answer is None:
                return None
            body = answer.body.decode("utf-8", "replace")
            return {"status": answer.status, "body": body[:MAX_RESULT_CHARACTERS]}
        text = str(failure) if answer is None else _describe(answer)
        details = str(failure) if answer is None else _readable_body(answer, MAX_RESULT_CHARACTERS)
        if outcome == FATAL:
            raise Fatal(text, details)
        if is_probe and waits is not None:
            raise Postponed(waits, text)
        wait = None if answer is None else status_table.retry_after(answer.headers, self._clock())
        if wait is not None:
            raise Retry(max(1.0, wait), text)
        raise Failed(text, details)

    def _record(
        self, breaker: Breaker | None, origin: str, code: str, outcome: str, is_probe: bool
    ) -> float | None:
        """Record the health of the destination, if the outcome says something about it."""
        if breaker is None:
            return None
        if code in network_errors.UNHEALTHY or code.startswith("HTTP_5"):
            return breaker.record(origin, code, is_probe=is_probe)
        has_answered = code.startswith("HTTP_") or code in network_errors.ANSWERED
        if has_answered and (outcome == DONE or is_probe):
            breaker.record(origin, "", is_probe=is_probe)
        return None


@lru_cache(4096)
def _origin(url: str) -> str:
    """The origin of a URL; "" if it has none, and will be refused."""
    try:
        return origin_of(url)
    except ValueError:
        return ""


def _describe(answer: Answer) -> str:
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "unknown status"
    reason = _readable_body(answer, MAX_REASON_CHARACTERS).partition("\n")[0].strip()
    detail = f": {safe_line(reason)}" if reason else ""
    return f"[HTTP_{answer.status}] {urlsplit(answer.url).netloc}: {phrase}{detail}"


def _readable_body(answer: Answer, most: int) -> str:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return answer.body[: 4 * most].decode("utf-8", "replace")[:most] if kind in _READABLE else ""
