"""`doctor` on a server of BullMQ queues."""

import pytest
from redis import Redis

from tests.bullmq_jobs import write_schedule
from tests.engine.formats.bullmq.conftest import Run


@pytest.mark.usefixtures("jobs")
def test_the_doctor_names_what_endangers_jobs(run: Run, client: Redis, redis_url: str) -> None:
    """Memory policy, append only file, no worker, versions, and problems, each with a fix."""
    client.hset("bull:sums:meta", "version", "bullmq:5.81.5")
    client.hset("bull:mails:meta", "version", "bullmq:6.7.0")
    client.lpush("bull:sums:wait", "9")
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        output = run("doctor", redis_url, code=1)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    for text in (
        "2 queues: mails, sums",
        "maxmemory-policy is allkeys-lru: the server may delete jobs",
        "fix: redis-cli config set maxmemory-policy noeviction",
        "appendonly is off",
        "jobs wait without a worker: sums",
        "BullMQ 5.81.5, 6.7.0 use this server",
        "is in wait, but has no data",
    ):
        assert text in output


def test_the_doctor_names_stopped_schedules(run: Run, client: Redis, redis_url: str) -> None:
    """Those without a next run, and a queue whose schedules cannot be read."""
    write_schedule(client)
    client.delete("bull:mails:delayed", *client.keys("bull:mails:repeat:tick:*"))
    client.hset("bull:sums:meta", "version", "bullmq:6.7.0")
    client.set("bull:sums:repeat", "x")
    output = " ".join(run("bullmq", "doctor", redis_url, code=1).split())
    assert "mails/tick: stopped: the job of its next run" in output
    assert "schedules sums: " in output and "another type than BullMQ expects" in output
