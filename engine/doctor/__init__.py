"""What is wrong with a place, and how to mend it: checks over what was found out beforehand."""
