"""Encode one sample of a place for the flight recorder: JSON, deflated with a fixed dictionary."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from engine.locks.token_buckets import BucketState
from engine.model import LockEvidence, State, Verdict
from engine.monitor.alerts import Alert, AlertInputs, AlertKind, Goal, Level, Where
from engine.monitor.throughput import Rates
from engine.monitor.transport_health import (
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    Source,
    TransportHealth,
)
from engine.text import decode

T = TypeVar("T")

MAX_SAMPLE_BYTES = 400
"""Maximum bytes of an encoded sample: a day of them stays below 4 MiB."""

_INFLATED = 16 << 10
"""Maximum bytes after decompression; the longest that is written has 4 KiB."""

_NAME, _WORDS = 48, 80
"""Characters kept of a name, and of a sentence."""

_MANY = 12
"""Maximum number of alerts, transports and token buckets kept."""


class BadSample(ValueError):
    """The bytes are not a sample in our format."""


class RecordedSample(NamedTuple):
    """A place at one moment; each default means "not known"."""

    when: float
    """Epoch seconds UTC."""
    by: str = ""
    """Recorded by: a worker or a console."""
    words: Mapping[State, str] = {}
    """States of the store, with its own names for them."""
    counts: Mapping[State, int] = {}
    complete: bool = False
    """True if every state had been counted."""
    unavailable: str = ""
    """Why the place could not be read; "" if it could."""
    problems: int = 0
    oldest: float | None = None
    """Creation of the oldest pending task, epoch seconds UTC."""
    due: int | None = None
    """Number of due pending tasks."""
    died: float | None = None
    """Time of death of the task dead longest, epoch seconds UTC."""
    rates: Rates | None = None
    lock: LockEvidence | None = None
    """Verdict, PID, start and reason; without the detailed facts."""
    alerts: tuple[Alert, ...] = ()
    transports: tuple[TransportHealth, ...] = ()
    """Totals and windows, without error clusters and sparklines."""
    tokens: Sequence[BucketState] | str = ()
    """Token buckets; the reason if they were not known."""
    lease_workers: int = 0
    """Number of workers of a place without a lock."""
    gone_failures: int = 0
    """Failures of the last tasks that left the store."""
    finer: Mapping[str, tuple[State, int]] = {}
    """Words of the store that are finer than a state: the state and the count of each."""


def make_sample(
    inputs: AlertInputs,
    now: float,
    by: str,
    *,
    oldest: float | None = None,
    due: int | None = None,
    died: float | None = None,
    rates: Rates | None = None,
    alerts: Sequence[Alert] = (),
    tokens: Sequence[BucketState] | str = (),
    finer: Mapping[str, tuple[State, int]] | None = None,
    lease_workers: int = 0,
    gone_failures: int = 0,
) -> RecordedSample:
    """Build the sample of a place from its facts, cut to what is stored."""
    lock = inputs.lock
    return RecordedSample(
        now,
        by,
        {state: word[:_NAME] for state, word in inputs.states.items()},
        counts={state: inputs.counts.get(state, 0) for state in inputs.states},
        finer={word[:_NAME]: count for word, count in (finer or {}).items()},
        complete=inputs.complete,
        unavailable=inputs.unavailable[:_WORDS],
        problems=inputs.problems,
        oldest=oldest,
        due=due,
        died=died,
        rates=rates,
        lock=lock
        and LockEvidence(lock.verdict, lock.pid, lock.since, lock.age, lock.reason[:_WORDS]),
        alerts=tuple(alerts[:_MANY]),
        transports=tuple(map(_brief, inputs.transports[:_MANY])),
        tokens=tokens[:_WORDS] if isinstance(tokens, str) else tuple(tokens[:_MANY]),
        lease_workers=lease_workers,
        gone_failures=gone_failures,
    )


def _brief(transport: TransportHealth) -> TransportHealth:
    return transport._replace(name=transport.name[:_NAME], faults=(), minutes=())


# ---- to bytes, and back


def encode_sample(sample: RecordedSample) -> bytes:
    """Encode a sample in at most `MAX_SAMPLE_BYTES` bytes; if it is longer, list ends are dropped
    first."""
    while True:
        data = zlib.compressobj(9, wbits=-15, zdict=_USUAL)
        text = json.dumps(_plain(sample), separators=(",", ":")).encode("ascii")
        packed = data.compress(text) + data.flush()
        if len(packed) <= MAX_SAMPLE_BYTES:
            return packed
        sample = _shorter(sample)


def _shorter(sample: RecordedSample) -> RecordedSample:
    """Drop half of the least urgent entries."""
    tokens = "" if isinstance(sample.tokens, str) else sample.tokens[: len(sample.tokens) // 2]
    transports = sample.transports[: len(sample.transports) // 2]
    alerts = sample.alerts[: len(sample.alerts) // 2]
    if len(sample.transports) > 2:
        return sample._replace(transports=transports)
    if len(sample.alerts) > 2:
        return sample._replace(alerts=alerts)
    if sample.transports or sample.alerts or sample.tokens:
        return sample._replace(transports=transports, alerts=alerts, tokens=tokens)
    bare = dict.fromkeys(sample.words, "")
    minimal = RecordedSample(
        sample.when, "", bare, sample.counts, sample.complete, problems=sample.problems
    )
    shortest = minimal._replace(
        finer=sample.finer,
        oldest=sample.oldest,
        due=sample.due,
        died=sample.died,
        rates=sample.rates,
        lease_workers=sample.lease_workers,
        gone_failures=sample.gone_failures,
    )
    return shortest if shortest != sample else shortest._replace(finer={})


def _plain(sample: RecordedSample) -> list[object]:
    lock, tokens = sample.lock, sample.tokens
    return [
        _FORMAT_VERSION,
        round(sample.when, 1),
        sample.by,
        [[str(state), word, sample.counts.get(state, 0)] for state, word in sample.words.items()],
        int(sample.complete),
        sample.unavailable,
        sample.problems,
        [sample.oldest, sample.due, sample.died, *_later_fields(sample)],
        sample.rates and [round(rate, 3) for rate in sample.rates],
        lock and [str(lock.verdict), lock.pid, lock.since, round(lock.age), lock.reason],
        [[str(a.level), str(a.kind), a.text, a.since, *_target(a.target)] for a in sample.alerts],
        [
            [
                w.name,
                w.totals,
                *_last_times(w),
                [x.tally for x in w.windows],
            ]
            for w in sample.transports
        ],
        tokens if isinstance(tokens, str) else [list(bucket) for bucket in tokens],
    ]


def _later_fields(sample: RecordedSample) -> list[object]:
    """What samples of earlier versions lack; nothing if there is nothing to say."""
    numbers = (sample.lease_workers, sample.gone_failures)
    if not any(numbers) and not sample.finer:
        return []
    return [*numbers, [[word, str(state), n] for word, (state, n) in sample.finer.items()]]


def _target(goal: Goal) -> list[object]:
    return [str(goal.where), goal.state and str(goal.state), goal.name]


def _last_times(transport: TransportHealth) -> tuple[float | None, float | None]:
    return transport.last_success, transport.last_failure


def decode_sample(data: bytes, place: str) -> RecordedSample:
    """Decode a sample of the place that is now named `place`.

    Raises:
        BadSample: the bytes are invalid; nothing in them is used.
    """
    try:
        inflate = zlib.decompressobj(wbits=-15, zdict=_USUAL)
        text = inflate.decompress(data, _INFLATED)
        row = decode.load_json(text, _INFLATED)
        if not isinstance(row, list) or len(row) != 13 or row[0] != _FORMAT_VERSION:
            raise BadSample("another format")
        return _sample(row, place)
    except (zlib.error, ValueError, TypeError, IndexError, KeyError) as error:
        raise BadSample(str(error)) from error


def _sample(row: list[Any], place: str) -> RecordedSample:
    states = [(State(name), _text(word), _whole(n)) for name, word, n in _list(row[3])]
    oldest, due, died, *later = _list(row[7])
    workers, gone, words = later or (0, 0, [])
    return RecordedSample(
        _number(row[1]),
        _text(row[2]),
        {state: word or str(state) for state, word, _ in states},
        counts={state: n for state, _, n in states},
        finer={_text(word): (State(name), _whole(n)) for word, name, n in _list(words)},
        complete=row[4] == 1,
        unavailable=_text(row[5]),
        problems=_whole(row[6]),
        oldest=_maybe(oldest, _number),
        due=_maybe(due, _whole),
        died=_maybe(died, _number),
        rates=_maybe(row[8], lambda rates: Rates(_number(rates[0]), _number(rates[1]))),
        lock=_maybe(row[9], _lock),
        alerts=tuple(_alert(alert, place) for alert in _list(row[10])),
        transports=tuple(_transport(transport) for transport in _list(row[11])),
        tokens=_text(row[12])
        if isinstance(row[12], str)
        else tuple(_bucket(n) for n in _list(row[12])),
        lease_workers=_whole(workers),
        gone_failures=_whole(gone),
    )


def _lock(row: Any) -> LockEvidence:
    verdict, pid, since, age, reason = row
    return LockEvidence(
        Verdict(verdict), _maybe(pid, _whole), _maybe(since, _number), _number(age), _text(reason)
    )


def _alert(row: Any, place: str) -> Alert:
    level, what, words, since, where, state, name = row
    goal = Goal(place, Where(where), _maybe(state, State), _text(name))
    return Alert(Level(level), AlertKind(what), _text(words), _maybe(since, _number), goal)


def _transport(row: Any) -> TransportHealth:
    name, totals, success, failure, tallies = row
    known = [_maybe(tally, _tally) for tally in _list(tallies)][: len(WINDOWS)]
    known += [None] * (len(WINDOWS) - len(known))
    windows = [
        CountWindow(window, seconds, tally, Source.METRICS if tally else Source.NONE, _why(tally))
        for (window, seconds), tally in zip(WINDOWS, known, strict=True)
    ]
    return TransportHealth(
        _text(name),
        _maybe(totals, _tally),
        tuple(windows),
        faults=(),
        last_success=_maybe(success, _number),
        last_failure=_maybe(failure, _number),
    )


def _why(tally: DeliveryCounts | None) -> str:
    return "" if tally else "not recorded"


def _tally(row: Any) -> DeliveryCounts:
    # Samples of earlier versions lack the mails to bad addresses.
    attempts, success, failures, *refused = map(_whole, row)
    return DeliveryCounts(attempts, success, failures, *refused[:1])


def _bucket(row: Any) -> BucketState:
    # Samples of earlier versions lack the paused flag.
    name, tokens, burst, more, per_hour, *paused = row
    return BucketState(
        _text(name),
        _whole(tokens),
        _whole(burst),
        next=_maybe(more, _number),
        per_hour=_maybe(per_hour, _whole),
        paused=bool(paused and paused[0] is True),
    )


def _maybe(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadSample("not a list")
    return value


_text = partial(decode.check_text, what="a text", most=_INFLATED)
_number = partial(decode.check_number, what="a number")
_whole = partial(decode.check_count, what="a count")


_FORMAT_VERSION = 1
"""Format version. Raise it with each change of the format or of `_USUAL`: other versions are not
read.
"""

_USUAL = b"".join(
    (
        b"one worker is there,but no is gone;the queue.prom was not written for says nothing has ",
        b"run for tasks are due no sign of life from old task more dead tasks since mail.log ",
        b"cannot be read: No such file or directory Permission denied stuck lock: stale lock: ",
        b'["WARN","contradictory","a failing transport"," failed % of mails in 10m","transports",',
        b'["WARN","an old task","oldest in pending for (over 1h00m)",null,"state","pending",""],',
        b'["WARN","more dead tasks","dlq + in 10m",17951,"state","dead",""],',
        b'["CRIT","nothing runs","nothing has run for , tasks are due",17951,"state","pending",""]',
        b'["WARN","dead tasks"," tasks in the dead-letter queue (over 10)",null,"state","dead",""]',
        b'["stale",null,17951,0,"PID is gone"],["stuck",17951,"PID lives, but gave no sign of ',
        b'life for s (limit 1200 s)"],["postfix",[0,0,0],17951,null,[[0,0,0],[0,0,0],[0,0,0]]],',
        b'["sendmail",null,null,null,[null,null,null]],["msmtp",["curl",["exim",["mailx",',
        b'["geoban_apply",["feeds_sync",["mail_send",5,5,null,60],["",1,5,',
        b'[1,17951,"worker",[["pending","pending",0],["active","work",0],["held","held",0],',
        b'["dead","dlq",0],["done","done",0],["trash","trash",0]],1,"",0,[null,0,null],',
        b'[0.0,0.0],["free",null,null,0,"no lock file"],[],[],[]]',
        b'[1,17951,"console",[["pending","pending",0],["active","work",0],["dead","dlq",0],',
        b'["held","held",0],["trash","trash",0]],1,"",0,[17951,0,17951],[0.0,0.0],',
        b'["held",1,17951,0,"PID is at work"],[],[],[]]',
    )
)
"""Compression dictionary: text that most samples contain. Part of the format."""
