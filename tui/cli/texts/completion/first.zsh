# The first word is a command or a place.
functions[_spooldeck_commands]=$functions[_shtab_spooldeck_commands]
_shtab_spooldeck_commands() {
    _spooldeck_commands
    _spooldeck_place_files
}
