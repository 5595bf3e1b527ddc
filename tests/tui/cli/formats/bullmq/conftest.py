"""Fixtures of BullMQ queues and of a federation's peers, for their commands."""

from tests.engine.formats.bullmq.conftest import client, run
from tests.engine.formats.bullmq.federation.conftest import make_sender, peer, sender

__all__ = ["client", "make_sender", "peer", "run", "sender"]
