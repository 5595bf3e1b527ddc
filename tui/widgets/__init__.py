"""Widgets that know no screen, and the theme."""
