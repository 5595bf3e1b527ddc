"""Which machine a mail comes from: of files and the kernel, never of a name server."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from engine.mail.host import full_name, outgoing_ip, this_host
from tests.tables import each


def etc(folder: Path, hosts: str = "", mailname: str = "") -> str:
    """A folder in place of /etc."""
    if hosts:
        (folder / "hosts").write_text(hosts)
    if mailname:
        (folder / "mailname").write_text(mailname)
    return str(folder)


def test_a_full_name_is_the_name(tmp_path: Path) -> None:
    """A machine that calls itself by its full name is believed."""
    there = etc(tmp_path, "127.0.1.1 other.example.org web1\n", "mail.example.org\n")
    assert full_name("web1.example.net", there) == "web1.example.net"


def test_a_short_name_is_completed_by_etc_hosts(tmp_path: Path) -> None:
    """As `hostname -f` has it on Debian, comments and other lines apart."""
    hosts = "# 10.0.0.1 web1.wrong.example web1\n127.0.0.1 localhost\n\n"
    hosts += "10.0.0.9 web11.example.org web11\n127.0.1.1\tweb1.example.org web1 # us\n"
    assert full_name("web1", etc(tmp_path, hosts, "example.net\n")) == "web1.example.org"


def test_without_it_the_name_is_that_of_mail(tmp_path: Path) -> None:
    """/etc/mailname says by which name mail leaves; without anything the short name stays."""
    assert full_name("web1", etc(tmp_path)) == "web1"
    assert full_name("web1", etc(tmp_path, "127.0.0.1 localhost web1\n", "m.example.org\n")) == (
        "m.example.org"
    )


@each("name", ["", "(none)", "a b", "a..b", "-x", "x\n", "a@b", "ü", "x" * 300])
def test_what_cannot_stand_in_an_address_is_no_name(name: str, tmp_path: Path) -> None:
    """A name that a header or an envelope could not carry is told as localhost."""
    assert full_name(name, etc(tmp_path)) == "localhost"


def test_files_with_rubbish_say_nothing(tmp_path: Path) -> None:
    """Bytes, endless lines and header lines in /etc/mailname and /etc/hosts give no name."""
    (tmp_path / "hosts").write_bytes(b"\xff\xfe\0 web1.\xff\xff web1\n" + b"x" * 100_000)
    (tmp_path / "mailname").write_bytes(b"a.b\rBcc: x@example.com\n\xff.com\n")
    assert full_name("web1", str(tmp_path)) in ("web1", "a.b")


def test_this_machine_has_a_name_and_perhaps_an_address() -> None:
    """Whatever it is, a name that mail can carry, and an address or none."""
    host = this_host()
    assert host.name
    assert not host.ip or ipaddress.ip_address(host.ip)
    assert outgoing_ip() == host.ip
