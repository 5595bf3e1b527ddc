"""A real Postfix instance and a real sshd for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.postfix_server import PostfixInstance, running_instance
from tests.ssh_server import SshServer, running_sshd


@pytest.fixture(scope="session")
def started() -> Iterator[PostfixInstance]:
    """An instance that runs."""
    with running_instance() as instance:
        yield instance


@pytest.fixture
def postfix(started: PostfixInstance) -> Iterator[PostfixInstance]:
    """The same, without a message."""
    started.clear()
    yield started
    started.clear()


@pytest.fixture(scope="module")
def ssh() -> Iterator[SshServer]:
    """A real sshd."""
    with running_sshd() as server:
        yield server
