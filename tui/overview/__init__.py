"""Overview of all places, live or at a recorded time."""
