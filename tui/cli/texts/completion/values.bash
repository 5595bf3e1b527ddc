# Print the values of a kind that complete a word, one a line. Nothing here expands a value.
_spooldeck_values() {
    command spooldeck completion --values "$1" bash -- \
        "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$2" 2>/dev/null
}

_spooldeck_ids() {
    _spooldeck_values ids "$1"
}

_spooldeck_states() {
    _spooldeck_values states "$1"
}

_spooldeck_place_files() {
    _spooldeck_values places "$1"
    compgen -f -- "$1"
}

_spooldeck_transports() {
    _spooldeck_values transports "$1"
}

# An operation, or the place before or after it.
_spooldeck_operations() {
    _spooldeck_values operations "$1"
    _spooldeck_place_files "$1"
}
