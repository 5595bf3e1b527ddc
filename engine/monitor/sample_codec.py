"""Encode one sample of a place for the flight recorder: JSON, deflated with a fixed dictionary."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, TypeAlias

from engine.locks.token_buckets import BucketState
from engine.model import LockEvidence, State, Verdict
from engine.monitor.alerts import Alert, AlertInputs, AlertKind, Goal, Level, Where
from engine.monitor.throughput import Drain, Rates
from engine.monitor.transport_health import (
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    Source,
    TransportHealth,
)
from engine.text import decode
from engine.text.typed_json import from_array
from engine.values import NamedTuple

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
    drain: Drain | None = None
    """Trend of the backlog; None: as the counts of the samples have it."""
    kinds: Mapping[str, int] | None = None
    """Pending tasks of each kind that has a token bucket."""


def make_sample(inputs: AlertInputs, own: RecordedSample) -> RecordedSample:
    """Add the facts of the alert rules to a sample that has the others, cut to what is stored."""
    lock, tokens = inputs.lock, own.tokens
    return own._replace(
        words={state: word[:_NAME] for state, word in inputs.states.items()},
        counts={state: inputs.counts.get(state, 0) for state in inputs.states},
        finer={word[:_NAME]: count for word, count in own.finer.items()},
        kinds=_limited_kinds(own),
        complete=inputs.complete,
        unavailable=inputs.unavailable[:_WORDS],
        problems=inputs.problems,
        lock=lock
        and LockEvidence(lock.verdict, lock.pid, lock.since, lock.age, lock.reason[:_WORDS]),
        alerts=own.alerts[:_MANY],
        transports=tuple(
            each._replace(name=each.name[:_NAME], faults=(), minutes=())
            for each in inputs.transports[:_MANY]
        ),
        tokens=tokens[:_WORDS] if isinstance(tokens, str) else tuple(tokens[:_MANY]),
    )


def _limited_kinds(sample: RecordedSample) -> Mapping[str, int] | None:
    if sample.kinds is None or isinstance(sample.tokens, str):
        return None
    names = {bucket.name for bucket in sample.tokens[:_MANY]}
    return {name: count for name, count in sample.kinds.items() if name in names}


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
    alerts, transports, tokens = sample.alerts, sample.transports, sample.tokens
    shorter = sample._replace(transports=transports[: len(transports) // 2])
    if len(transports) > 2:
        return shorter
    if len(alerts) > 2:
        return sample._replace(alerts=alerts[: len(alerts) // 2])
    if transports or alerts or tokens:
        half = "" if isinstance(tokens, str) else tokens[: len(tokens) // 2]
        return shorter._replace(alerts=alerts[: len(alerts) // 2], tokens=half)
    bare = dict.fromkeys(sample.words, "")
    shortest = sample._replace(by="", words=bare, unavailable="", lock=None, tokens=(), kinds=None)
    return shortest if shortest != sample else shortest._replace(finer={})


_CountsByWindow: TypeAlias = tuple[DeliveryCounts | None, ...]


class _Times(NamedTuple):
    oldest: float | None
    due: int | None
    died: float | None
    lease_workers: int = 0
    """This and the next ones are not written if there is nothing to say."""
    gone_failures: int = 0
    finer: tuple[tuple[str, State, int], ...] = ()
    drain: Drain | None = None
    kinds: tuple[tuple[str, int], ...] | None = None


_StoredAlert: TypeAlias = tuple[Level, AlertKind, str, float | None, Where, State | None, str]


class _StoredAlerts(NamedTuple):
    alerts: tuple[_StoredAlert, ...]


class _StoredSample(NamedTuple):
    """A sample as it is stored, by position; earlier versions lack the fields with a default, also
    those of `DeliveryCounts` and `BucketState`."""

    version: int
    when: float
    by: str
    states: tuple[tuple[State, str, int], ...]
    complete: int
    unavailable: str
    problems: int
    times: _Times
    rates: Rates | None
    lock: tuple[Verdict, int | None, float | None, float, str] | None
    alerts: tuple[_StoredAlert, ...]
    transports: tuple[
        tuple[str, DeliveryCounts | None, float | None, float | None, _CountsByWindow], ...
    ]
    tokens: tuple[BucketState, ...] | str


_ALERTS_AT = _StoredSample._fields.index("alerts")


def _plain(sample: RecordedSample) -> list[object]:
    lock = sample.lock
    finer = [(word, state, n) for word, (state, n) in sample.finer.items()]
    drain, kinds = sample.drain, sample.kinds
    later = [
        sample.lease_workers,
        sample.gone_failures,
        finer,
        drain and [drain.trend, drain.seconds and round(drain.seconds, 1), drain.unknown],
        None if kinds is None else [*kinds.items()],
    ]
    while later and not later[-1]:
        del later[-1]
    return [
        _FORMAT_VERSION,
        round(sample.when, 1),
        sample.by,
        [(state, word, sample.counts.get(state, 0)) for state, word in sample.words.items()],
        int(sample.complete),
        sample.unavailable,
        sample.problems,
        [sample.oldest, sample.due, sample.died, *later],
        sample.rates and [round(rate, 3) for rate in sample.rates],
        lock and [lock.verdict, lock.pid, lock.since, round(lock.age), lock.reason],
        [[*alert[:4], *alert.target[1:]] for alert in sample.alerts],
        [
            [w.name, w.totals, w.last_success, w.last_failure, [x.tally for x in w.windows]]
            for w in sample.transports
        ],
        sample.tokens,
    ]


def decode_sample(data: bytes, place: str) -> RecordedSample:
    """Decode a sample of the place that is now named `place`.

    Raises:
        BadSample: the bytes are invalid; nothing in them is used."""
    try:
        row = from_array(_StoredSample, _inflate(data), "sample")
        if row.version != _FORMAT_VERSION:
            raise BadSample("another format")
        return _sample(row, place)
    except (zlib.error, ValueError) as error:
        raise BadSample(str(error)) from error


def decode_alerts(samples: Iterable[bytes], place: str) -> Iterator[tuple[Alert, ...]]:
    """Decode only the alerts of each sample of the place that is now named `place`, those of the
    sample before if it is invalid: in a quarter of the time, as few samples have other ones."""
    before: object = []
    alerts: tuple[Alert, ...] = ()
    for data in samples:
        with suppress(zlib.error, ValueError):
            row = _inflate(data)
            match row:
                case [version, *rest] if version == _FORMAT_VERSION and len(rest) >= _ALERTS_AT:
                    if row[_ALERTS_AT] != before:
                        stored = from_array(_StoredAlerts, [row[_ALERTS_AT]], "sample")
                        before, alerts = row[_ALERTS_AT], _alerts(stored.alerts, place)
        yield alerts


def _inflate(data: bytes) -> Any:
    text = zlib.decompressobj(wbits=-15, zdict=_USUAL).decompress(data, _INFLATED)
    return decode.load_json(text, _INFLATED)


def _alerts(rows: tuple[_StoredAlert, ...], place: str) -> tuple[Alert, ...]:
    return tuple(Alert(*one[:4], Goal(place, *one[4:])) for one in rows)


def _sample(row: _StoredSample, place: str) -> RecordedSample:
    fields = row.times._asdict()
    fields["finer"] = {word: (state, n) for word, state, n in row.times.finer}
    fields["kinds"] = None if row.times.kinds is None else dict(row.times.kinds)
    return RecordedSample(
        row.when,
        row.by,
        {state: word or str(state) for state, word, _ in row.states},
        counts={state: n for state, _, n in row.states},
        complete=row.complete == 1,
        unavailable=row.unavailable,
        problems=row.problems,
        rates=row.rates,
        lock=None if row.lock is None else LockEvidence(*row.lock),
        alerts=_alerts(row.alerts, place),
        transports=tuple(_transport(*transport) for transport in row.transports),
        tokens=row.tokens,
        **fields,
    )


def _transport(
    name: str,
    totals: DeliveryCounts | None,
    success: float | None,
    failure: float | None,
    tallies: _CountsByWindow,
) -> TransportHealth:
    windows = tuple(
        CountWindow(window, seconds, tally, Source.METRICS)
        if tally
        else CountWindow(window, seconds, reason="not recorded")
        for (window, seconds), tally in zip(WINDOWS, chain(tallies, repeat(None)), strict=False)
    )
    return TransportHealth(
        name, totals, windows, faults=(), last_success=success, last_failure=failure
    )


_FORMAT_VERSION = 1
"""Format version. Raise it with each change of the format or of `_USUAL`: other versions are not
read."""

_USUAL = (
    b"one worker is there,but no is gone;the queue.prom was not written for says nothing has "
    b"run for tasks are due no sign of life from old task more dead tasks since mail.log "
    b"cannot be read: No such file or directory Permission denied stuck lock: stale lock: "
    b'["WARN","contradictory","a failing transport"," failed % of mails in 10m","transports",'
    b'["WARN","an old task","oldest in pending for (over 1h00m)",null,"state","pending",""],'
    b'["WARN","more dead tasks","dlq + in 10m",17951,"state","dead",""],'
    b'["CRIT","nothing runs","nothing has run for , tasks are due",17951,"state","pending",""]'
    b'["WARN","dead tasks"," tasks in the dead-letter queue (over 10)",null,"state","dead",""]'
    b'["stale",null,17951,0,"PID is gone"],["stuck",17951,"PID lives, but gave no sign of '
    b'life for s (limit 1200 s)"],["postfix",[0,0,0],17951,null,[[0,0,0],[0,0,0],[0,0,0]]],'
    b'["sendmail",null,null,null,[null,null,null]],["msmtp",["curl",["exim",["mailx",'
    b'["geoban_apply",["feeds_sync",["mail_send",5,5,null,60],["",1,5,'
    b'[1,17951,"worker",[["pending","pending",0],["active","work",0],["held","held",0],'
    b'["dead","dlq",0],["done","done",0],["trash","trash",0]],1,"",0,[null,0,null],'
    b'[0.0,0.0],["free",null,null,0,"no lock file"],[],[],[]]'
    b'[1,17951,"console",[["pending","pending",0],["active","work",0],["dead","dlq",0],'
    b'["held","held",0],["trash","trash",0]],1,"",0,[17951,0,17951],[0.0,0.0],'
    b'["held",1,17951,0,"PID is at work"],[],[],[]]'
)
"""Compression dictionary: text that most samples contain. Part of the format."""
