"""A small SMTP server for the mail of demo places: it refuses some recipients, stores nothing."""

from __future__ import annotations

import socketserver
import threading
import time

BUSY_REPLY = "450 4.2.0 mailbox busy"

_REFUSALS = (("busy", BUSY_REPLY), ("gone", "550 5.1.1 no such user here"))
"""Replies of the server by the start of the recipient's address; it accepts all others."""

_DELIVERY_SECONDS = 0.3
"""Seconds that the server takes for a mail, so that it is visible in flight."""


class _DemoSmtpSession(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self._say("220 sink.example.net ESMTP")
        while line := self.rfile.readline():
            word, _, rest = line.decode("ascii", "replace").strip().partition(" ")
            if word.upper() == "DATA":
                self._say("354 go ahead")
                while self.rfile.readline() not in (b".\r\n", b""):
                    pass
                time.sleep(_DELIVERY_SECONDS)
            is_recipient = word.upper() == "RCPT"
            self._say(_rcpt_reply(rest) if is_recipient else _REPLIES.get(word.upper(), _OK))
            if word.upper() == "QUIT":
                return

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


_OK = "250 2.0.0 ok"

_REPLIES = {"EHLO": "250-sink.example.net\r\n250-8BITMIME\r\n250 SMTPUTF8", "QUIT": "221 2.0.0 bye"}


def _rcpt_reply(words: str) -> str:
    address = words.partition("<")[2]
    return next((reply for start, reply in _REFUSALS if address.startswith(start)), "250 2.1.5 ok")


class DemoSmtpServer(socketserver.ThreadingTCPServer):
    """An SMTP server on a local address, port 0 is a free one; it listens immediately and answers
    after `start`."""

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((host, port), _DemoSmtpSession)

    def start(self) -> None:
        """Answer in a thread of its own."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that disconnects in the middle."""
