"""The store fixtures that the conformance suite runs on."""

from tests.engine.formats.conftest import (
    both_jobs,
    kannader,
    kannader_in_use,
    now,
    open_bullmq,
    open_kannader,
    open_queue,
    open_spool,
    open_store,
    place,
    queue_in_use,
    spool,
    sql,
    user_job,
)

__all__ = [
    "both_jobs",
    "kannader",
    "kannader_in_use",
    "now",
    "open_bullmq",
    "open_kannader",
    "open_queue",
    "open_spool",
    "open_store",
    "place",
    "queue_in_use",
    "spool",
    "sql",
    "user_job",
]
