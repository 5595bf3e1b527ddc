"""The row of the federation: what an envelope costs beside the calls that it cannot do without."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from engine.formats.bullmq.federation.envelope import seal, sign
from tests.bench.measure import Bench, Figures, compare, interleave

TEXT = b"x" * 4096
CALLS, ROUNDS = 200, 41


def envelope(bench: Bench) -> Figures:
    """Envelope and signature of 4 KiB, against the calls of `cryptography` in them."""
    signing, recipient = Ed25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()

    def bare() -> None:
        pair = X25519PrivateKey.generate()
        secret = pair.exchange(recipient)
        key = HKDF(SHA256(), 32, b"salt", b"info").derive(secret)
        AESGCM(key).encrypt(os.urandom(12), TEXT, None)
        pair.public_key().public_bytes_raw()
        signing.sign(TEXT)

    def values() -> None:
        seal(TEXT, recipient)
        sign(TEXT, signing)

    def body() -> None:
        values = seal(TEXT, recipient).to_json(), sign(TEXT, signing).encode()
        b'{"method":"FEDERATE","payload":%b,"signature":"%b"}' % values

    ways = {"bare": _timed(bare), "values": _timed(values), "body": _timed(body)}
    rounds = interleave(ways, ROUNDS)
    baseline, what = "bare cryptography calls", "envelope and signature, 4 KiB, CPU"
    yield compare(what, "us", (rounds["values"], rounds["bare"]), baseline, 1.3)
    what = "and as the JSON that is sent"
    yield compare(what, "us", (rounds["body"], rounds["bare"]), baseline, None)


def _timed(call: Callable[[], None]) -> Callable[[], float]:
    def run() -> float:
        began = time.process_time()
        for _ in range(CALLS):
            call()
        return (time.process_time() - began) / CALLS * 1e6

    return run
