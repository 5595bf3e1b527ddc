"""What the formats share: detection of folders and files, and a store in memory."""
