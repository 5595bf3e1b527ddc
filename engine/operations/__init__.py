"""Plan, apply, journal, undo; the trash, notes and controls."""
