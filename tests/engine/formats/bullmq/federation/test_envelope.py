"""Envelopes, signatures and keys: as those of NaCl, by vectors, and refused when they are wrong."""

import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pytest import MonkeyPatch

from engine.formats.bullmq.federation.envelope import (
    BadEnvelope,
    decode,
    encode,
    fingerprint,
    is_signed,
    parse_envelope,
    seal,
    seal_with,
    sign,
    unseal,
)
from engine.formats.bullmq.federation.keys import (
    ENCRYPTION_PRIVATE,
    PRIVATE,
    PUBLIC,
    VARIABLES,
    BadKeys,
    OwnKeys,
    finish_keys,
    make_keys,
    parse_keys,
    read_keys,
    write_keys,
)
from tests.store_contents import naming

VECTORS: Mapping[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())


@pytest.fixture(scope="module")
def keys() -> OwnKeys:
    """The keys of the vectors."""
    return parse_keys(VECTORS["keys"])


def test_vectors_are_made_again(keys: OwnKeys) -> None:
    """The same pair and IV give the same envelope, which is decrypted to the exact bytes; text and
    key give the same signature, which no other text has."""
    pair = X25519PrivateKey.from_private_bytes(decode(VECTORS["ephemeral_private_key"]))
    text = VECTORS["text"].encode()
    made = seal_with(text, keys.public.encryption_key(), pair, decode(VECTORS["iv"]))
    assert json.loads(made.to_json()) == VECTORS["envelope"]
    assert sign(text, keys.signing) == VECTORS["signature"]
    assert fingerprint(keys.public.signing) == VECTORS["fingerprint"]
    assert keys.texts() == VECTORS["keys"]
    assert unseal(parse_envelope(VECTORS["envelope"]), keys.encryption) == text
    assert is_signed(text, VECTORS["signature"], keys.public.signing_key())
    assert not is_signed(text + b" ", VECTORS["signature"], keys.public.signing_key())
    assert not is_signed(text, None, keys.public.signing_key())


def test_each_envelope_is_new(keys: OwnKeys) -> None:
    """Two envelopes of one text share no part but its length."""
    one, other = (seal(b"text", keys.public.encryption_key()) for _ in range(2))
    assert not set(one) & set(other)
    assert unseal(one, keys.encryption) == unseal(other, keys.encryption) == b"text"


def test_a_changed_envelope_is_refused(keys: OwnKeys) -> None:
    """One changed bit, a missing part, another type than text, or any other JSON value; and a point
    of small order as the sender's or recipient's key."""
    envelope: dict[str, Any] = VECTORS["envelope"]
    wrong: list[object] = [None, [], "text", 42, {}]
    for part in ("ephemeralPublicKey", "iv", "ciphertext", "authTag"):
        first = decode(envelope[part])
        changed = envelope | {part: encode(bytes([first[0] ^ 1]) + first[1:])}
        with pytest.raises(BadEnvelope, match="another key"):
            unseal(parse_envelope(changed), keys.encryption)
        wrong += [envelope | {part: value} for value in (None, 7, "%", "ü", encode(b"short")[:-1])]
    for one in wrong:
        with naming(one), pytest.raises(BadEnvelope):
            parse_envelope(one)
    zero = encode(bytes(32))
    with pytest.raises(BadEnvelope, match="no secret"):
        seal(b"text", keys.public._replace(encryption=zero).encryption_key())
    with pytest.raises(BadEnvelope, match="no secret"):
        unseal(parse_envelope(envelope | {"ephemeralPublicKey": zero}), keys.encryption)


def test_keys_are_written_and_read(tmp_path: Path) -> None:
    """Four files of mode 0600, which give the same keys; none is ever replaced. A private key of
    mode 0640 is refused; a public one may be read. No text of the keys as a value has a secret."""
    keys = make_keys()
    folder = tmp_path / "keys"
    write_keys(str(folder), keys)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 4
    with pytest.raises(FileExistsError):
        write_keys(str(folder), make_keys())
    (folder / PUBLIC.lower()).chmod(0o644)
    assert read_keys({}, str(folder)).texts() == keys.texts()
    assert not any(keys.texts()[name] in repr(keys) for name in (PRIVATE, ENCRYPTION_PRIVATE))
    (folder / PRIVATE.lower()).chmod(0o640)
    with pytest.raises(BadKeys, match="others may read it: chmod 600"):
        read_keys({}, str(folder))


@pytest.mark.parametrize("call", ["fsync", "link", "unlink"])
@pytest.mark.parametrize("number", range(4))
def test_a_killed_process_leaves_all_keys_or_none(
    tmp_path: Path, monkeypatch: MonkeyPatch, call: str, number: int
) -> None:
    """Killed before any of these calls: no half of a pair is ever left."""
    folder, keys, real, calls = tmp_path / "keys", make_keys(), getattr(os, call), count()

    def killed(*arguments: Any, **options: Any) -> Any:
        if next(calls) == number:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    folder.mkdir()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, call, killed)
        write_keys(str(folder), keys)
    finish_keys(str(folder))
    if not list(folder.iterdir()):
        keys = make_keys()
        write_keys(str(folder), keys)
    assert read_keys({}, str(folder)).texts() == keys.texts()
    assert sorted(path.name for path in folder.iterdir()) == sorted(map(str.lower, VARIABLES))
    assert {path.stat().st_nlink for path in folder.iterdir()} == {1}


def test_bad_keys_are_named_but_not_shown() -> None:
    """The error names the variable; it contains no key."""
    for name, value, expected in (
        (PRIVATE, "", "FEDERATION_PRIVATE_KEY: not set"),
        (PRIVATE, "%%%", "FEDERATION_PRIVATE_KEY: expected base64"),
        (ENCRYPTION_PRIVATE, encode(b"short"), "expected 32 bytes in base64, not 5"),
        (PUBLIC, encode(bytes(32)), "FEDERATION_PUBLIC_KEY: the halves of the pair do not fit"),
    ):
        with pytest.raises(BadKeys) as error:
            read_keys(VECTORS["keys"] | {name: value})
        assert expected in str(error.value)
        assert not any(text in str(error.value) for text in VECTORS["keys"].values())
