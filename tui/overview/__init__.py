"""All places on one screen, now or at a recorded time."""
