"""Fixtures of BullMQ queues and of a federation's peers, for their commands."""

from tests.engine.formats.bullmq.conftest import client, own_state
from tests.engine.formats.bullmq.federation.conftest import make, peer, sender

__all__ = ["client", "make", "own_state", "peer", "sender"]
