"""The spool of the NFTBan queue contract: one file for each task, one folder for each state."""

from engine.stores.nftban.spool import NftbanStore, Spool, make_spool

__all__ = ["NftbanStore", "Spool", "make_spool"]
