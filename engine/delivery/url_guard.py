"""Which URLs may be requested: http and https, to public or explicitly allowed addresses.

A task could otherwise make the worker send requests to services that only this machine can reach
(server-side request forgery). The guard judges the addresses that a connection is made to, not the
name alone, which can resolve to another address at the next look-up."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias

import httpx

from engine.config.deliver_config import AllowedPeer
from engine.delivery.network_errors import BLOCKED_URL, DeliveryError
from engine.destinations.destination import normal_host, origin_of

Resolver: TypeAlias = Callable[[str, int], Sequence[str]]
"""Host name, port -> its addresses; may raise OSError (`socket.gaierror`)."""

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"""Addresses of the metadata services of cloud providers, which give out credentials."""

_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")
"""Private addresses of before RFC 3879, which Python counts as public."""

_PROBLEMS: tuple[tuple[Callable[[IpAddress], bool], str], ...] = (
    (lambda address: address in _METADATA, "a metadata service"),
    (lambda address: address.is_loopback, "a loopback address"),
    (lambda address: address.is_unspecified, "the unspecified address"),
    (lambda address: address.is_link_local, "a link-local address"),
    (lambda address: address.is_multicast, "a multicast address"),
    (lambda address: address.is_private or address in _SITE_LOCAL, "a private address"),
    (lambda address: address.is_reserved, "a reserved address"),
    (lambda address: not address.is_global, "not a public address"),
)
"""The first row that fits is the reason."""

_IPV4_IN_IPV6 = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),
        ("::/96", 0),
        ("64:ff9b::/96", 0),
        ("2002::/16", 80),
    )
)
"""Networks whose addresses contain an IPv4 address, so many bits above the end: mapped (RFC 4291),
compatible (the same), NAT64 (RFC 6052), 6to4 (RFC 3056)."""


def resolve_name(host: str, port: int) -> Sequence[str]:
    """The addresses of a host name, by getaddrinfo; blocks. Raises `OSError`: there are none."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[4][0]) for address in addresses))


def innermost(address: IpAddress) -> IpAddress:
    """The IPv4 address that an IPv6 address contains, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and int(address) > 1:  # not :: and ::1
        for network, shift in _IPV4_IN_IPV6:
            if address in network:
                return ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF)
    return address


def address_problem(address: IpAddress) -> str:
    """Why an address is not public; "" if it is."""
    inner = innermost(address)
    return next((text for fits, text in _PROBLEMS if fits(inner)), "")


class UrlGuard:
    """Judges URLs and addresses by one allow-list."""

    def __init__(
        self, allowed: Collection[AllowedPeer] = (), resolve: Resolver = resolve_name
    ) -> None:
        self._allowed, self._resolve = tuple(allowed), resolve

    @staticmethod
    @lru_cache(512)
    def check_url(url: str | httpx.URL) -> httpx.URL:
        """Parse a URL and check all of it but its addresses; its host is then in the one spelling
        that registry and blocks use. Raises `DeliveryError`: BLOCKED_URL, with the reason."""
        try:
            parsed = httpx.URL(url)
            host = parsed.host
            parsed.raw_host.decode("ascii").encode("idna")  # as each look-up does
        except (httpx.InvalidURL, TypeError, ValueError) as error:
            raise DeliveryError(BLOCKED_URL, f"not a URL: {error}") from error
        if parsed.scheme not in ("http", "https"):
            scheme = f"{parsed.scheme[:20]}:" if parsed.scheme else "no scheme"
            raise DeliveryError(BLOCKED_URL, f"{scheme}, expected http: or https:")
        if parsed.userinfo:
            raise DeliveryError(BLOCKED_URL, "a user name or password in the URL")
        if not host:
            raise DeliveryError(BLOCKED_URL, "no host name in the URL")
        if parsed.port is not None and not 0 < parsed.port < 65536:
            raise DeliveryError(BLOCKED_URL, f"port {parsed.port}, expected 1 to 65535")
        return _with_normal_host(parsed, str(url))

    def addresses(
        self,
        host: str,
        port: int,
        wait: Callable[[Callable[[], Sequence[str]]], Sequence[str]] = lambda look_up: look_up(),
    ) -> Sequence[str]:
        """Look up a `normal_host` and judge each of its addresses; a connection may be made to any
        of them. `wait` runs the look-up, which blocks.

        Raises:
            DeliveryError: BLOCKED_URL: at least one of them is not allowed.
            OSError: there are none."""
        addresses: Sequence[str] = ()
        with suppress(ValueError):  # a name
            addresses = (str(ipaddress.ip_address(host)),)
        is_literal = bool(addresses)
        addresses = addresses or wait(lambda: self._resolve(host, port))
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        for address in addresses:
            parsed = ipaddress.ip_address(address)
            problem = address_problem(parsed)
            if problem and not self._is_allowed(host, parsed, port):
                target = host if is_literal else f"{host} is {address}"
                raise DeliveryError(BLOCKED_URL, f"{target}: {problem}, not in deliver.allow")
        return addresses

    def _is_allowed(self, name: str, address: IpAddress, port: int) -> bool:
        inner = innermost(address)
        return any(
            (peer.port is None or peer.port == port)
            and (
                peer.host == name
                if peer.network is None
                else address in peer.network or inner in peer.network
            )
            for peer in self._allowed
        )


def _with_normal_host(parsed: httpx.URL, url: str) -> httpx.URL:
    """The URL with its `normal_host`.

    Raises:
        DeliveryError: BLOCKED_URL: there is none, or the block list would read another host in it.
    """
    try:
        host = normal_host(parsed.raw_host.decode("ascii"))
        name = f"[{host}]" if ":" in host else host
        port = "" if parsed.port is None else f":{parsed.port}"
        is_same = origin_of(url) == f"{parsed.scheme}://{name}{port}"
    except ValueError as error:
        raise DeliveryError(BLOCKED_URL, str(error)) from error
    if not is_same:
        raise DeliveryError(BLOCKED_URL, "not a URL: its host can be read in two ways")
    return parsed if parsed.raw_host == host.encode() else parsed.copy_with(host=host)
