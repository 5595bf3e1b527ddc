"""The commands of an NFTBan queue, its units and shell functions."""
