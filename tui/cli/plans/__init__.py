"""Commands that act on tasks: verbs, undo, journal, trash."""
