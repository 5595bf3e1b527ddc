"""Keep an index in step with its store and answer the event loop from it."""
