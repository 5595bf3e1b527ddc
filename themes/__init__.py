"""Colour themes, one YAML file each, read as package data."""
