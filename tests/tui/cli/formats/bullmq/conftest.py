"""Fixtures of BullMQ queues and of a federation's peers, for their commands."""

from tests.engine.formats.bullmq.conftest import client, own_state
from tests.engine.formats.bullmq.federation.conftest import make_sender, peer, sender

__all__ = ["client", "make_sender", "own_state", "peer", "sender"]
