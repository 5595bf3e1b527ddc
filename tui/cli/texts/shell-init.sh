# The queue functions of the NFTBan Queue and Mail Contract, done by spooldeck; for bash 4 or later:
#
#     eval "$(spooldeck shell-init)"
#
# Each call starts spooldeck once. NFTBAN_DATA_DIR, NFTBAN_RUN_DIR and the others count as they are
# at the time of the call, exported or not. Output and exit codes are the contract's; whatever else
# goes wrong is one line on standard error and exit 1, of process_next exit 3.

__spooldeck_queue() {
    local __spooldeck_other=$1 __spooldeck_code=0
    shift
    (
        # Often readonly, so that they cannot be handed on as NAME=value in front of a command.
        export @variables@
        exec @command@ queue "$@"
    ) || __spooldeck_code=$?
    if (( __spooldeck_code > 3 && __spooldeck_code < 128 )); then
        return "$__spooldeck_other"
    fi
    return "$__spooldeck_code"
}

nftban_queue_add() {
    if [[ -z ${1:-} ]]; then
        printf 'Usage: nftban_queue_add <task_type> [description] [payload_file]\n' >&2
        return 1
    fi
    __spooldeck_queue 1 add -- "${@:1:3}"
}

nftban_queue_process_next() {
    __spooldeck_queue 3 process-next --quiet
}

nftban_queue_count() {
    __spooldeck_queue 1 count
}

nftban_queue_count_dlq() {
    __spooldeck_queue 1 count-dlq
}

nftban_queue_has_pending() {
    [[ $(nftban_queue_count) == [1-9]* ]]
}

nftban_queue_dlq_list() {
    __spooldeck_queue 1 dlq list
}

nftban_queue_dlq_retry() {
    if [[ -z ${1:-} ]]; then
        printf 'Usage: nftban_queue_dlq_retry <task_id>\n' >&2
        return 1
    fi
    __spooldeck_queue 1 dlq retry -- "$1"
}

nftban_queue_dlq_purge() {
    if [[ ${1:-7} == *[!0-9]* ]]; then
        printf 'Usage: nftban_queue_dlq_purge [days]\n' >&2
        return 1
    fi
    __spooldeck_queue 1 dlq purge -- "${1:-7}"
}

export -f __spooldeck_queue nftban_queue_add nftban_queue_process_next nftban_queue_count \
    nftban_queue_count_dlq nftban_queue_has_pending nftban_queue_dlq_list nftban_queue_dlq_retry \
    nftban_queue_dlq_purge
