"""Peers and senders of the federation's tests; all are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # packages of an extra
    from tests.federation_peers import Peer
    from tests.federation_sender import Sender


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A server on loopback."""
    from tests.federation_peers import Peer

    with Peer() as one:
        yield one


@pytest.fixture
def relay() -> Iterator[Peer]:
    """Another server on loopback."""
    from tests.federation_peers import Peer

    with Peer() as one:
        yield one


@pytest.fixture
def make(memory_path: Path) -> Iterator[Callable[..., Sender]]:
    """Makes our side, with a profile, peers that it knows, and other changes of its parts."""
    from tests.federation_sender import Sender

    with ExitStack() as ended:

        def make_one(profile: str = "default", *known: Peer, **more: Any) -> Sender:
            folder = memory_path / str(len(list(memory_path.iterdir())))
            folder.mkdir()
            sender = Sender(folder, profile, **more)
            ended.callback(sender.close)
            for one in known:
                sender.know(one)
                one.applied.clear()
            return sender

        yield make_one


@pytest.fixture
def sender(make: Callable[..., Sender]) -> Sender:
    """Our side with the default profile."""
    return make()


@pytest.fixture
def known(make: Callable[..., Sender], peer: Peer) -> Sender:
    """Our side with the default profile, which knows the peer."""
    return make("default", peer)


@pytest.fixture(params=["default", "sipher"])
def either(make: Callable[..., Sender], request: pytest.FixtureRequest) -> Sender:
    """Our side with each profile."""
    return make(request.param)


@pytest.fixture(params=["default", "sipher"])
def both(make: Callable[..., Sender], peer: Peer, request: pytest.FixtureRequest) -> Sender:
    """Our side with each profile, which knows the peer."""
    return make(request.param, peer)
