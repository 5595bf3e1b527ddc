# Print the values of a kind that complete the current word, one a line.
function _spooldeck_values
    set -l line (commandline -opc)
    command spooldeck completion --values $argv[1] fish -- $line[2..-1] (commandline -ct) 2>/dev/null
end

function _spooldeck_ids
    _spooldeck_values ids
end

function _spooldeck_states
    _spooldeck_values states
end

function _spooldeck_place_files
    _spooldeck_values places
    __fish_complete_path (commandline -ct)
end

function _spooldeck_transports
    _spooldeck_values transports
end

# An operation, or the place before or after it.
function _spooldeck_operations
    _spooldeck_values operations
    _spooldeck_place_files
end
