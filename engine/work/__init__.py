"""The worker, its handlers, and the rescue of abandoned tasks."""
