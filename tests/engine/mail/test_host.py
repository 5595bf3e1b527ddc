"""Name and address of this host, by files and the kernel, never by a name server."""

import ipaddress
from pathlib import Path

from engine.mail.host import full_name, outgoing_ip, this_host
from tests.tables import each

HOSTS = """\
# 10.0.0.1 web1.wrong.example web1
127.0.0.1 localhost

10.0.0.9 web11.example.org web11
127.0.1.1\tweb1.example.org web1 # us
"""


@each(("name", "hosts", "mailname", "full"), [
    ("web1.example.net", HOSTS, "mail.example.org\n", "web1.example.net"),
    ("web1", HOSTS, "example.net\n", "web1.example.org"),
    ("web1", "", "", "web1"),
    ("web1", "127.0.0.1 localhost web1\n", "m.example.org\n", "m.example.org"),
    *((name, "", "", "localhost") for name in (
        "", "(none)", "a b", "a..b", "-x", "x\n", "a@b", "ü", "x" * 300,
    )),
])  # fmt: skip
def test_name_of_the_host(tmp_path: Path, name: str, hosts: str, mailname: str, full: str) -> None:
    """That of the kernel, /etc/hosts, /etc/mailname, the short one, or, if unfit, localhost."""
    (tmp_path / "hosts").write_text(hosts)
    (tmp_path / "mailname").write_text(mailname)
    assert full_name(name, str(tmp_path)) == full
    (tmp_path / "mailname").unlink()
    (tmp_path / "hosts").unlink()
    assert full_name("web1", str(tmp_path)) == "web1"


def test_files_with_rubbish_say_nothing(tmp_path: Path) -> None:
    """Binary data, endless lines and header lines in these files give no name."""
    (tmp_path / "hosts").write_bytes(b"\xff\xfe\0 web1.\xff\xff web1\n" + b"x" * 100_000)
    (tmp_path / "mailname").write_bytes(b"a.b\rBcc: x@example.com\n\xff.com\n")
    assert full_name("web1", str(tmp_path)) in ("web1", "a.b")


def test_this_machine_has_a_name_and_perhaps_an_address() -> None:
    """This machine has a name that a mail can have, and an address or none."""
    host = this_host()
    assert host.name
    assert not host.ip or ipaddress.ip_address(host.ip)
    assert outgoing_ip() == host.ip
