"""Keep an index in sync with its store, and answer the event loop from it."""
