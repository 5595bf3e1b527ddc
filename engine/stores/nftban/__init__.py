"""The spool of the NFTBan queue contract: one file for each task, one folder for each state."""

from engine.stores.nftban.store import COMMIT_GROUP_SIZE, NftbanStore, SpoolFolders, make_spool

__all__ = ["COMMIT_GROUP_SIZE", "NftbanStore", "SpoolFolders", "make_spool"]
