"""What tests of the mail transports have in common."""

import pytest

from tests.smtp_server import Certificate, certificate


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The certificate of a server on this host."""
    return certificate(tmp_path_factory.mktemp("pem"))
