"""Checks of an NFTBan queue: facts of the place, and findings with their repairs."""
