# The first word is a command or a place.
complete -c spooldeck -n _shtab_spooldeck_using -ka '(_spooldeck_place_files)'
