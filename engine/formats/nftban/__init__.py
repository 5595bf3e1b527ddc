"""The spool of the NFTBan queue contract: one file for each task, one folder for each state."""
