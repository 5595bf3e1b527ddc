"""Running operations, the journal, undo, and controls of a queue."""
