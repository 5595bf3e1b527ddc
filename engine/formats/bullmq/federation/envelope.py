"""Envelopes, signatures and fingerprints of the federation, on `cryptography` and PyNaCl.

An envelope is for one recipient: a fresh X25519 pair, HSalsa20 of the shared secret as NaCl does
(`crypto_box_beforenm`), HKDF-SHA256 of that as the key, and AES-256-GCM. A signature is Ed25519
over the exact bytes of the text that the envelope contains. The envelope does not name its sender.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from collections.abc import Mapping
from functools import partial

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.bindings import crypto_box_beforenm
from nacl.exceptions import CryptoError

from engine.values import NamedTuple

KEY_BYTES, IV_BYTES, TAG_BYTES = 32, 12, 16
_SHA256 = SHA256()
_SALT, _INFO = b"sipher-federation-v1-salt", b"sipher-federation-v1-aes"


class BadEnvelope(ValueError):
    """A value is no envelope for us, or no key; the text has the reason."""


_base64 = partial(binascii.b2a_base64, newline=False)
_JSON = b'{"ephemeralPublicKey":"%b","iv":"%b","ciphertext":"%b","authTag":"%b"}'


def encode(data: bytes) -> str:
    """Bytes as base64: standard alphabet, padded."""
    return _base64(data).decode("ascii")


def decode(text: object, size: int | None = None) -> bytes:
    """The bytes of base64, `size` of them.

    Raises:
        BadEnvelope: it is something else.
    """
    try:
        data = binascii.a2b_base64(text if isinstance(text, str) else "-", strict_mode=True)
    except ValueError:  # binascii.Error, or other characters than ASCII
        raise BadEnvelope("expected base64") from None
    if size is not None and len(data) != size:
        raise BadEnvelope(f"expected {size} bytes in base64, not {len(data):,}")
    return data


class SealedPayload(NamedTuple):
    """An encrypted text."""

    key: bytes
    """The public half of the pair that was made for it."""
    iv: bytes
    ciphertext: bytes
    tag: bytes

    def to_json(self) -> bytes:
        """The envelope as a JSON object of four base64 texts."""
        return _JSON % tuple(map(_base64, self))


def parse_envelope(value: object) -> SealedPayload:
    """The envelope in a parsed JSON value.

    Raises:
        BadEnvelope: it has another form.
    """
    if not isinstance(value, Mapping):
        raise BadEnvelope("expected an envelope")
    return SealedPayload(
        decode(value.get("ephemeralPublicKey"), KEY_BYTES),
        decode(value.get("iv"), IV_BYTES),
        decode(value.get("ciphertext")),
        decode(value.get("authTag"), TAG_BYTES),
    )


def seal(text: bytes, recipient: X25519PublicKey) -> SealedPayload:
    """Encrypt a text for a recipient.

    Raises:
        BadEnvelope: the key of the recipient is one of those that give no secret.
    """
    return seal_with(text, recipient, X25519PrivateKey.generate(), os.urandom(IV_BYTES))


def seal_with(
    text: bytes, recipient: X25519PublicKey, pair: X25519PrivateKey, iv: bytes
) -> SealedPayload:
    """`seal` with a given pair and IV, each of which must be used once only."""
    sealed = AESGCM(_message_key(pair, recipient)).encrypt(iv, text, None)
    public = pair.public_key().public_bytes_raw()
    return SealedPayload(public, iv, sealed[:-TAG_BYTES], sealed[-TAG_BYTES:])


def unseal(envelope: SealedPayload, private_key: X25519PrivateKey) -> bytes:
    """Decrypt a text that is for us.

    Raises:
        BadEnvelope: it is for another key, or was changed.
    """
    sender = X25519PublicKey.from_public_bytes(envelope.key)
    key = _message_key(private_key, sender)
    try:
        return AESGCM(key).decrypt(envelope.iv, envelope.ciphertext + envelope.tag, None)
    except InvalidTag:
        raise BadEnvelope("an envelope for another key, or one that was changed") from None


def _message_key(private_key: X25519PrivateKey, public_key: X25519PublicKey) -> bytes:
    try:
        secret = crypto_box_beforenm(public_key.public_bytes_raw(), private_key.private_bytes_raw())
    except CryptoError:  # all bits zero: RFC 7748, section 6.1
        raise BadEnvelope("a key that gives no secret") from None
    return HKDF(_SHA256, KEY_BYTES, _SALT, _INFO).derive(secret)


def sign(text: bytes, key: Ed25519PrivateKey) -> str:
    """The signature of a text, in base64."""
    return encode(key.sign(text))


def is_signed(text: bytes, signature: object, key: Ed25519PublicKey) -> bool:
    """True if a signature in base64 is that of a text by a key."""
    try:
        key.verify(decode(signature), text)
    except (BadEnvelope, InvalidSignature):
        return False
    return True


def fingerprint(key: str) -> str:
    """SHA-256 of a public key, in hexadecimal digits.

    Raises:
        BadEnvelope: it is no key in base64.
    """
    return hashlib.sha256(decode(key, KEY_BYTES)).hexdigest()
