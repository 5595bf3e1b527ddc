# Add the values of a kind that complete the current word. Nothing here expands a value.
_spooldeck_values() {
    # _arguments shortens $words, so the line is split again.
    local -a line=("${(@Q)${(z)LBUFFER}}") values
    [[ -n $PREFIX ]] || line+=('')
    values=("${(@f)$(command spooldeck completion --values $1 zsh -- "${(@)line[2,-1]}" 2>/dev/null)}")
    compadd -a values
}

_spooldeck_ids() {
    _spooldeck_values ids
}

_spooldeck_states() {
    _spooldeck_values states
}

_spooldeck_place_files() {
    _spooldeck_values places
    _files
}

_spooldeck_transports() {
    _spooldeck_values transports
}

# An operation, or the place before or after it.
_spooldeck_operations() {
    _spooldeck_values operations
    _spooldeck_place_files
}
