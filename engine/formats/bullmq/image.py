"""The image of a job: its hash and position as JSON, for undo and to look at; and its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from engine.formats.bullmq.row import PLACES
from engine.model import Part, State, Task
from engine.store import MAX_PART_BYTES, Unsupported
from engine.text.typed_json import from_json
from engine.values import NamedTuple

LONG_FIELD_BYTES = 128 * 1024
"""A longer field is in the image by its SHA-1 only, and is never changed; so longer data cannot be
edited."""

TRACES_PART = "stack traces"
FIELD_PARTS: Mapping[str, str] = {
    "data": "data",
    "options": "opts",
    "return value": "returnvalue",
    TRACES_PART: "stacktrace",
    "last error": "failedReason",
}
"""Parts of a job that are one field of its hash."""
JOB_PART, LOGS_PART = "job", "log"

_quoted = json.encoder.encode_basestring
"""A text as JSON, other than ASCII as it is."""


def _json_object(fields: Mapping[str, str]) -> str:
    """Texts by name as JSON, a line for each: json.dumps with an indent is ten times slower."""
    lines = [f"  {_quoted(name)}: {_quoted(text)}" for name, text in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n }" if lines else "{}"


class JobImage(NamedTuple):
    """A job as it was."""

    id: str
    place: str
    position: str
    """Its score, or the number of jobs ahead of it in a list."""
    fields: Mapping[str, str]
    long_fields: Mapping[str, str] = {}
    """SHA-1 of each field that is not in `fields`."""

    def encode(self) -> bytes:
        """The image as JSON."""
        lines = [
            f'{{\n "id": {_quoted(self.id)}',
            f' "place": {_quoted(self.place)}',
            f' "position": {_quoted(self.position)}',
            f' "fields": {_json_object(self.fields)}',
            f' "long_fields": {_json_object(self.long_fields)}\n}}',
        ]
        return to_bytes(",\n".join(lines))

    @property
    def flat_fields(self) -> list[str]:
        """Names and values in turn."""
        return [text for item in self.fields.items() for text in item]

    @property
    def state(self) -> State | None:
        """The state of its place."""
        return PLACES[self.place].state if self.place in PLACES else None


class NewJob(NamedTuple):
    """A job to add."""

    queue: str
    name: str
    data: str = "{}"
    """JSON."""
    options: Mapping[str, object] = {}
    """BullMQ's options besides delay, priority and id: attempts, backoff, ..."""
    delay: float = 0.0
    """Seconds."""
    priority: int = 0
    id: str = ""
    """"": the next number of the queue."""

    def as_task(self, ident: str, now: float) -> Task:
        """The pending task that it becomes."""
        task = Task(ident, self.queue, State.PENDING, now, group=self.name, description=self.name)
        due = now + self.delay if self.delay else 0.0
        return task._replace(due=due, priority=self.priority)

    def as_image(self, ident: str) -> JobImage:
        """Its data and options as an image."""
        return JobImage(ident, "", "", {"data": self.data, "opts": json.dumps(self.options)})


def to_bytes(text: str) -> bytes:
    """The bytes that Redis has for a text."""
    return text.encode("utf-8", "surrogateescape")


def make_image(ident: str, was: str, fields: Mapping[str, str]) -> JobImage:
    """The image of a job, from "PLACE POSITION" and its hash."""
    place, _, position = was.partition(" ")
    if len(fields) < 1000 and max(map(len, fields.values()), default=0) <= LONG_FIELD_BYTES:
        return JobImage(ident, place, position, fields)
    short, long = dict[str, str](), dict[str, str]()
    for name, value in fields.items():
        if len(value) <= LONG_FIELD_BYTES and len(short) < 1000:
            short[name] = value
        else:
            long[name] = hashlib.sha1(to_bytes(value)).hexdigest()
    return JobImage(ident, place, position, short, long)


def parse_image(data: bytes) -> JobImage:
    """The image in bytes that `encode` made.

    Raises:
        Unsupported: it is not one.
    """
    try:
        values = json.loads(data.decode("utf-8", "surrogateescape"))
        return from_json(JobImage, values, "image", exact=True)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"not the image of a job: {error}") from error


def list_parts(key: str, image: bytes, fields: Mapping[str, str]) -> list[Part]:
    """The parts of a job: itself, then its fields that are there."""
    parts = [Part(JOB_PART, key, len(image))]
    for name, field in FIELD_PARTS.items():
        if (field_text := field_part(fields, name)) is not None:
            size = len(field_text) if name == TRACES_PART else len(to_bytes(fields[field]))
            errors = _errors_of(fields[field]) if name == TRACES_PART else ()
            parts.append(Part(name, f"{key} {field}", size, errors=errors))
    return parts


def field_part(fields: Mapping[str, str], part: str) -> bytes | None:
    """The bytes of a part that is one field; None if there is no such part."""
    value = fields.get(FIELD_PARTS.get(part, ""))
    if value and part == TRACES_PART:
        traces = _read_traces(value)
        value = value if traces is None else "\n\n".join(traces)
    return to_bytes(value)[:MAX_PART_BYTES] if value else None


def _read_traces(text: str) -> list[str] | None:
    """The stack traces of the attempts; None if they are not a list of texts."""
    try:
        traces = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(traces, list) or not all(isinstance(trace, str) for trace in traces):
        return None
    return traces


def _errors_of(text: str) -> tuple[str, ...]:
    """The line with the error of each stack trace: the first of Node's, the last of Python's."""
    some = (trace.strip().splitlines() or [""] for trace in _read_traces(text) or ())
    return tuple(lines[-1 if lines[0].startswith("Traceback ") else 0] for lines in some)
