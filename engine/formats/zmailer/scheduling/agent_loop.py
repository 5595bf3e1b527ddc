"""The agent's side of the conversation, for agents in Python: read jobs, do each, answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from engine.formats.zmailer.scheduling.agent_lines import (
    HUNGRY,
    IDLE,
    JobLine,
    LineBuffer,
    parse_job,
)
from engine.system import files

READ_BYTES = 64 << 10


def run_agent(serve: Callable[[JobLine], Iterable[bytes]], stdin: int = 0, stdout: int = 1) -> None:
    """Serve jobs until an empty line, or the end of the input; a last line without LF is no job.

    `serve` yields the answers to a job, each with its LF, and each once it is true on disk: the
    scheduler may be gone when it is written. Then the agent ends after this job.
    """
    with suppress(BrokenPipeError, ConnectionResetError):
        files.write_all(stdout, HUNGRY)
        buffer = LineBuffer()
        while data := _read(stdin):
            for line in buffer.feed(data):
                if not line:
                    return
                for answer in _answers(line, serve):
                    files.write_all(stdout, answer)
                files.write_all(stdout, HUNGRY)


def _read(stdin: int) -> bytes:
    try:
        return os.read(stdin, READ_BYTES)
    except ConnectionResetError:
        return b""


def _answers(line: bytes, serve: Callable[[JobLine], Iterable[bytes]]) -> Iterable[bytes]:
    if line + b"\n" == IDLE:
        return ()
    job = parse_job(line)
    return (b"#no job: %b\n" % line[:80],) if job is None else serve(job)
