"""The Textual app and its global actions."""
