"""The address of a scheduler, mailq://USER@HOST:PORT or mailq+unix://USER@/PATH, or of a dump."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.formats.zmailer.mailq.connection import ANONYMOUS, ServerAddress
from engine.formats.zmailer.mailq.server import DEFAULT_PORT
from engine.store import Unavailable


def parse_place(address: Address) -> ServerAddress:
    """Parse the URL of a server; a path is that of a rendezvous file, and has neither host nor
    socket.

    Without a user, it logs in as the client of the original does.

    Raises:
        Unavailable: a part is invalid or unknown, or the password of the user is missing.
    """
    if not address.is_url:
        return ServerAddress(address.text)
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(address.text)
    is_socket = parts.scheme == "mailq+unix"
    if parts.query:
        raise Unavailable(f"{address.text}: expected no parameters")
    if is_socket and (parts.hostname or not parts.path):
        raise Unavailable(f"{address.text}: expected mailq+unix:///PATH/OF/SOCKET")
    if not is_socket and (parts.path or not parts.hostname):
        raise Unavailable(f"{address.text}: expected mailq://HOST:PORT")
    user = unquote(parts.username or "")
    if any(not c.isprintable() or c.isspace() for c in user):
        raise Unavailable(f"{address.text}: blanks or control characters in the user")
    if user and user != ANONYMOUS and not address.password:
        raise Unavailable(
            f"{address.text}: no password of user {user}: write the URL with it into places"
        )
    return ServerAddress(
        address.text,
        unquote(parts.path) if is_socket else "",
        parts.hostname or "",
        port=parts.port or DEFAULT_PORT,
        user=user or ANONYMOUS,
        password=address.password or ANONYMOUS,
    )
