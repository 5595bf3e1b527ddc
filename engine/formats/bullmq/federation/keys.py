"""The keys of this server and of its peers: read, made, checked, and never shown but for the public
halves.

The four keys are base64 texts in files of one folder, mode 0600, or in environment variables with
the names that Sipher uses. A private signing key is in the form of NaCl: seed, then public key.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EEXIST

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from engine.formats.base.folder import name_exists
from engine.formats.bullmq.federation.envelope import KEY_BYTES, BadEnvelope, decode, encode
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.values import NamedTuple

SIGNING, ENCRYPTION = "publicKey", "encryptionPublicKey"
"""Keys of the free JSON of a destination: its public keys in base64, as /discover names them."""

PUBLIC, PRIVATE = "FEDERATION_PUBLIC_KEY", "FEDERATION_PRIVATE_KEY"
ENCRYPTION_PUBLIC = "FEDERATION_ENCRYPTION_PUBLIC_KEY"
ENCRYPTION_PRIVATE = "FEDERATION_ENCRYPTION_PRIVATE_KEY"
VARIABLES = (PUBLIC, PRIVATE, ENCRYPTION_PUBLIC, ENCRYPTION_PRIVATE)
"""Environment variables; a file has the same name in lower case."""

_FILES = tuple(name.lower() for name in VARIABLES)
_SECRET = frozenset({PRIVATE, ENCRYPTION_PRIVATE})
_KEY_FILE_BYTES = 4096


class BadKeys(Exception):
    """The keys cannot be used; the text says which, and contains none."""


class PeerKeys(NamedTuple):
    """The public keys of a server, each 32 bytes in base64.

    Its methods raise BadEnvelope if a key is malformed.
    """

    signing: str
    encryption: str

    def check(self) -> PeerKeys:
        """Return the keys if both are well-formed."""
        decode(self.signing, KEY_BYTES)
        decode(self.encryption, KEY_BYTES)
        return self

    def signing_key(self) -> Ed25519PublicKey:
        """The key that verifies signatures."""
        return Ed25519PublicKey.from_public_bytes(decode(self.signing, KEY_BYTES))

    def encryption_key(self) -> X25519PublicKey:
        """The key that envelopes are made for."""
        return X25519PublicKey.from_public_bytes(decode(self.encryption, KEY_BYTES))


class OwnKeys(NamedTuple):
    """Both pairs of this server."""

    signing: Ed25519PrivateKey
    encryption: X25519PrivateKey

    @property
    def public(self) -> PeerKeys:
        """The public halves."""
        return PeerKeys(*(encode(pair.public_key().public_bytes_raw()) for pair in self))

    def texts(self) -> Mapping[str, str]:
        """The four texts by the names of their variables; two of them are secret."""
        seed = self.signing.private_bytes_raw()
        return {
            PUBLIC: self.public.signing,
            PRIVATE: encode(seed + self.signing.public_key().public_bytes_raw()),
            ENCRYPTION_PUBLIC: self.public.encryption,
            ENCRYPTION_PRIVATE: encode(self.encryption.private_bytes_raw()),
        }


def make_keys() -> OwnKeys:
    """Make two new pairs."""
    return OwnKeys(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())


def parse_keys(texts: Mapping[str, str]) -> OwnKeys:
    """The keys in the four texts; a public one may be missing.

    Raises:
        BadKeys: a text is missing or malformed, or the halves of a pair do not fit.
    """
    private = _decode(texts, PRIVATE, 2 * KEY_BYTES)
    keys = OwnKeys(
        Ed25519PrivateKey.from_private_bytes(private[:KEY_BYTES]),
        X25519PrivateKey.from_private_bytes(_decode(texts, ENCRYPTION_PRIVATE, KEY_BYTES)),
    )
    expected = keys.texts()
    for name in (PUBLIC, PRIVATE, ENCRYPTION_PUBLIC):
        if texts.get(name, expected[name]).strip() != expected[name]:
            raise BadKeys(f"{name}: the halves of the pair do not fit")
    return keys


def _decode(texts: Mapping[str, str], name: str, size: int) -> bytes:
    if not texts.get(name, "").strip():
        raise BadKeys(f"{name}: not set")
    try:
        return decode(texts[name].strip(), size)
    except BadEnvelope as error:
        raise BadKeys(f"{name}: {error}") from None


def read_keys(environ: Mapping[str, str], folder: str = "") -> OwnKeys:
    """Read the keys from the files of a folder; without one from the environment.

    Raises:
        BadKeys: they cannot be used, or others may read a private one.
    """
    return parse_keys(environ if not folder else _read_files(folder))


def _read_files(folder: str) -> dict[str, str]:
    keys_by_name = {}
    try:
        directory = files.open_dir_path(folder)
    except OSError as error:
        raise BadKeys(f"{folder}: {error_text(error)}") from error
    with closing_fd(directory):
        for name in VARIABLES:
            try:
                fd = files.open_plain(name.lower(), directory)
            except FileNotFoundError:
                continue  # `parse_keys` reports one that is needed
            except OSError as error:
                raise BadKeys(f"{folder}/{name.lower()}: {error_text(error)}") from error
            with open(fd, "rb") as file:
                mode = os.fstat(fd).st_mode
                if name in _SECRET and mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise BadKeys(f"{folder}/{name.lower()}: others may read it: chmod 600")
                keys_by_name[name] = file.read(_KEY_FILE_BYTES).decode("ascii", "replace")
    return keys_by_name


_NEW = ".new"
"""Ends the name of a file that is being written."""


def write_keys(folder: str, keys: OwnKeys) -> None:
    """Write the four files with mode 0600; make the folder if it is missing.

    All are written and fsynced under other names, then get their names by link(2), which replaces
    no file. After a kill, `finish_keys` gives the rest their names, or removes all.

    Raises:
        FileExistsError: one is there already.
        OSError: they cannot be written.
    """
    with _locked(folder, make=True) as directory:
        _finish(directory)
        for name in _FILES:
            if name_exists(name, directory):
                raise FileExistsError(EEXIST, "exists already", f"{folder}/{name}")
        owner = files.new_file_owner(os.fstat(directory))
        for name, text in keys.texts().items():
            fd = files.create_file(f"{name.lower()}{_NEW}", directory, owner, 0o600)
            with open(fd, "wb") as file:
                file.write(f"{text}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        os.fsync(directory)
        _give_names(directory)


def finish_keys(folder: str) -> None:
    """Finish what a killed `write_keys` has left: its files get their names if one has, which is
    done once all are whole; else they are removed.

    Raises:
        OSError: the folder is missing, or cannot be changed.
    """
    with _locked(folder) as directory:
        _finish(directory)


@contextmanager
def _locked(folder: str, *, make: bool = False) -> Iterator[int]:
    """The open folder, with its flock: two processes make no keys at the same time."""
    with closing_fd(files.open_dir(folder, make=make)) as directory, files.Flock(directory):
        yield directory


def _finish(directory: int) -> None:
    if any(name_exists(name, directory) for name in _FILES):
        _give_names(directory)
        return
    for name in _FILES:
        files.unlink_quietly(f"{name}{_NEW}", directory)


def _give_names(directory: int) -> None:
    for name in _FILES:
        new = f"{name}{_NEW}"
        if not name_exists(new, directory):
            continue
        with suppress(FileExistsError):  # killed between the two calls
            os.link(new, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        os.unlink(new, dir_fd=directory)
    os.fsync(directory)
