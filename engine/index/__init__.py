"""The SQLite mirror of one store, and the filter language that queries it."""
