"""ZGB's mail queue: the table `mail_queue` of a SQLite database, sent at the rate of a token
bucket.
"""

from engine.stores.zgb.place import RateLimit, ZgbDatabase
from engine.stores.zgb.schema import create
from engine.stores.zgb.store import ZgbStore

__all__ = ["RateLimit", "ZgbDatabase", "ZgbStore", "create"]
