"""The SQLite index of one store, and the filter language that queries it."""
