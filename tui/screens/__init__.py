"""Base classes of screens, and the small dialogs."""
