"""Fixtures of a federation's peers, for its commands."""

from tests.engine.formats.bullmq.federation.conftest import make_sender, peer, sender

__all__ = ["make_sender", "peer", "sender"]
