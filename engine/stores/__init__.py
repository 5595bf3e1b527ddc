"""Detect the format of a place and open its store; the in-memory reference store."""
