"""A real sshd for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.ssh_server import SshServer, running_sshd


@pytest.fixture(scope="package")
def ssh() -> Iterator[SshServer]:
    """A real sshd."""
    with running_sshd() as server:
        yield server
