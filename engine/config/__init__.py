"""Settings from YAML, NFTBAN_* variables and nftban.conf as frozen values."""
