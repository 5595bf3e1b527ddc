"""Paced retry: scheduler, canaries, stop rules and the outcome of each task."""
