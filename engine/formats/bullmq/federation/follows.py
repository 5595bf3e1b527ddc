"""The table of follows of the application: the decision of another server is stored in it."""

from __future__ import annotations

from engine.destinations.database import SqlDatabase
from engine.formats.bullmq.federation.acks import Follow

TABLE = "follows"
_IS_FOLLOW = "follower_id = ? AND following_id = ? AND follower_server_url = ?"


class SqlFollows:
    """Follows in SQLite or Postgres, in a table with the columns of Sipher."""

    def __init__(self, database: SqlDatabase, table: str = TABLE) -> None:
        """`table`, with or without a schema, was checked (`validators.check_table`)."""
        self._database = database
        self._table = ".".join(f'"{name}"' for name in table.split("."))

    def decide(self, follow: Follow) -> bool:
        """Accepted: set `accepted`; rejected or not decided: set `acknowledged`.

        Raises:
            Unavailable: the database cannot be used.
        """
        column = "accepted" if follow.accepted else "acknowledged"
        sql = f"UPDATE {self._table} SET {column} = TRUE WHERE {_IS_FOLLOW}"
        values = follow.follower, follow.following, follow.server
        return self._database.run(sql, values).changed > 0

    def is_undecided(self, follower: str, following: str, server: str) -> bool:
        """True if there is such a follow, neither `accepted` nor `acknowledged`.

        Raises:
            Unavailable: the database cannot be used.
        """
        decided = "COALESCE(accepted, FALSE) OR COALESCE(acknowledged, FALSE)"
        sql = f"SELECT 1 FROM {self._table} WHERE {_IS_FOLLOW} AND NOT ({decided})"
        return bool(self._database.run(sql, (follower, following, server)).rows)
