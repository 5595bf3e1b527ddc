"""Which URLs and addresses may be requested."""

import socket
from contextlib import nullcontext

import pytest

from engine.config.deliver_config import AllowedPeer, parse_allowed
from engine.delivery.network_errors import DeliveryError
from engine.delivery.url_guard import UrlGuard

PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")


def guard(*allow: str, **names: list[str]) -> UrlGuard:
    """A guard whose resolver knows only these names."""

    def resolve(host: str, port: int) -> list[str]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return names[host]

    return UrlGuard([parse_allowed(text) for text in allow], resolve)


URLS = {
    "no scheme": "//example.com/x example.com/x ",
    "file:, expected http: or https:": "file:///etc/passwd",
    "gopher:, expected": "gopher://example.com/",
    "no host name": "http:///x http:x",
    "a user name or password in the URL": "http://user@example.com/ "
    "http://user:secret@example.com/ http://example.com\\@127.0.0.1/",
    "port 0": "http://example.com:0/",
    "port 99999": "http://example.com:99999/",
    "not a URL": "http://example.com:x/ http://example.com/\n http://[::1/ http://a..b/ "
    f"http://.example.com/ http://xn--/ http://{'a' * 64}.example/ http://a.b/{'a' * 70_000}",
}


@pytest.mark.parametrize(
    ("url", "why"),
    [pytest.param(url, why, id=url[:40]) for why, urls in URLS.items() for url in urls.split(" ")],
)
def test_a_url_of_another_form_is_refused(url: str, why: str) -> None:
    """Only http and https with a host and a port are sent to, and no error repeats a password."""
    with pytest.raises(DeliveryError, match=r"^\[BLOCKED_URL\] ") as refused:
        guard().check_url(url)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


ADDRESSES = {
    "loopback": "127.0.0.1 127.8.9.1 ::1 ::127.0.0.1 ::ffff:127.0.0.1 64:ff9b::7f00:1 "
    "2002:7f00:1::",
    "private": "0.1.2.3 10.1.2.3 172.16.0.1 192.168.1.1 240.0.0.1 255.255.255.255 ::ffff:a00:1 "
    "2002:a00:1::5 2001:0:4136:e378:8000:63bf:3fff:fdd2 fd12::1 fec0::1",
    "(private|reserved)": "64:ff9b:1::a00:1",
    "unspecified": "0.0.0.0 ::",
    "not a public": "100.64.0.1",
    "metadata": "169.254.169.254 168.63.129.16 64:ff9b::a9fe:a9fe fd00:ec2::254",
    "link-local": "169.254.1.1 fe80::1 fe80::1%lo",
    "multicast": "224.0.0.1 ff02::1",
    "reserved": "4000::1",
}


@pytest.mark.parametrize(
    ("address", "why"),
    [(address, why) for why, addresses in ADDRESSES.items() for address in addresses.split()],
)
def test_an_address_that_is_not_public_is_refused(address: str, why: str) -> None:
    """Also as an IPv4 address inside an IPv6 address, and as one of several of a name."""
    for known in (guard(name=[address]), guard(name=[PUBLIC[0], address])):
        with pytest.raises(DeliveryError, match=rf"^\[BLOCKED_URL\] .*{why}.*deliver.allow"):
            known.addresses("name", 80)
    with pytest.raises(DeliveryError, match=why):
        guard().addresses(address, 80)


def test_public_addresses_are_returned_as_they_were_found() -> None:
    """Also those of IPv6, and an IPv4 address inside one; the resolver's error is passed on."""
    assert guard(name=[*PUBLIC]).addresses("name", 443) == [*PUBLIC]
    assert guard().addresses("64:ff9b::5db8:d822", 443) == ("64:ff9b::5db8:d822",)
    with pytest.raises(socket.gaierror):
        guard().addresses("nowhere", 80)


ALLOWED = {
    True: "10.0.0.0/8 peer 80, 10.1.2.3 peer 80, 10.1.2.3:8080 peer 8080, peer peer 80, "
    "peer:80 peer 80, 10.0.0.0/8 ::ffff:10.1.2.3 80, ::1 ::1 80, [::1]:8080 ::1 8080",
    False: "10.0.0.0/16 peer 80, 10.1.2.3:8080 peer 80, peer:81 peer 80, other peer 80, "
    "peer 10.1.2.3 80, [::1]:8080 ::1 80",
}


@pytest.mark.parametrize(
    ("row", "is_allowed"),
    [(row, answer) for answer, rows in ALLOWED.items() for row in rows.split(", ")],
)
def test_only_the_allow_list_is_allowed(row: str, is_allowed: bool) -> None:
    """An entry is a network, an address or a name, for each port or for one."""
    allow, host, port = row.split()
    with nullcontext() if is_allowed else pytest.raises(DeliveryError):
        guard(allow, peer=["10.1.2.3"]).addresses(host, int(port))


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1/8", "peer:0", "peer:x", "peer:", "pe er", "http://peer", "1.2.3", "*"]
)
def test_an_entry_of_the_allow_list_that_is_none_is_refused(text: str) -> None:
    """It is no network, address or host name; a host name has no case and may end in a dot."""
    with pytest.raises(ValueError, match=r".") as refused:
        parse_allowed(text)
    assert not isinstance(refused.value, UnicodeError)
    assert parse_allowed("Peer.Internal.:80") == AllowedPeer(host="peer.internal", port=80)
