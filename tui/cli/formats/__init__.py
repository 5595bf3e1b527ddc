"""Commands for Kannader spools and ZGB databases."""
