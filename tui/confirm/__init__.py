"""What an operator confirms before it is written: digits, arming, reason, outdated plans."""
