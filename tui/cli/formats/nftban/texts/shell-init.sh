# The functions of the NFTBan Queue and Mail Contract, implemented by spooldeck, for bash 4 or later:
#
#     eval "$(spooldeck shell-init)"
#
# Each call starts spooldeck once, with the values of NFTBAN_DATA_DIR, NFTBAN_RUN_DIR and the other
# variables at that time, exported or not. Output and exit codes are those of the contract; any
# other error is one line on standard error and exit code 1 (process_next: 3). A mail that
# nftban_mail_send_with_retry could neither send nor keep is reported to syslog, exit code 2.

# Another shell, such as dash (sh of Debian), defines nothing, and goes on.
if [ -n "${BASH_VERSION:-}" ]; then

__spooldeck() {
    local __spooldeck_other=$1 __spooldeck_code=0
    shift
    (
        # Often readonly, so NAME=value in front of a command would fail.
        export @variables@
        # Only commands that send mail get the relay's password.
        if [[ $1 == mail || $2 == process-next ]]; then
            export @secret@
        fi
        SPOOLDECK_CONTRACT=1 exec @command@ "$@"
    ) || __spooldeck_code=$?
    # The task was added, only its id could not be printed: to the contract that is no failure.
    if (( __spooldeck_code == 4 )); then
        return 0
    fi
    # @lost@: the mail is lost, and the command has reported it.
    if (( __spooldeck_code > 3 && __spooldeck_code < 128 && __spooldeck_code != @lost@ )); then
        return "$__spooldeck_other"
    fi
    return "$__spooldeck_code"
}

nftban_queue_add() {
    if [[ -z ${1:-} ]]; then
        printf 'Usage: nftban_queue_add <task_type> [description] [payload_file]\n' >&2
        return 1
    fi
    __spooldeck 1 queue add -- "${@:1:3}"
}

nftban_queue_process_next() {
    __spooldeck 3 queue process-next --quiet
}

nftban_queue_process_batch() {
    local __spooldeck_left=${1:-10} __spooldeck_code=0
    if [[ $__spooldeck_left == *[!0-9]* ]]; then
        printf 'Usage: nftban_queue_process_batch [tasks]\n' >&2
        return 1
    fi
    while (( __spooldeck_left-- > 0 && __spooldeck_code == 0 )); do
        nftban_queue_process_next || __spooldeck_code=$?
    done
    # 1: nothing more is due, which is no failure of a batch.
    (( __spooldeck_code <= 1 )) || return "$__spooldeck_code"
}

nftban_queue_count() {
    __spooldeck 1 queue count
}

nftban_queue_count_dlq() {
    __spooldeck 1 queue count-dlq
}

nftban_queue_has_pending() {
    [[ $(nftban_queue_count) == [1-9]* ]]
}

nftban_queue_dlq_list() {
    __spooldeck 1 queue dlq list
}

nftban_queue_dlq_retry() {
    if [[ -z ${1:-} ]]; then
        printf 'Usage: nftban_queue_dlq_retry <task_id>\n' >&2
        return 1
    fi
    __spooldeck 1 queue dlq retry -- "$1"
}

nftban_queue_dlq_purge() {
    if [[ ${1:-7} == *[!0-9]* ]]; then
        printf 'Usage: nftban_queue_dlq_purge [days]\n' >&2
        return 1
    fi
    __spooldeck 1 queue dlq purge -- "${1:-7}"
}

nftban_mail_send() {
    if (( $# == 0 )); then
        printf 'Usage: nftban_mail_send <content> [recipient]\n' >&2
        return 1
    fi
    # An argument of a program has at most 128 KiB; standard input has no limit.
    printf '%s\0\0%s' "${2:-}" "$1" | __spooldeck 1 mail send --null
}

nftban_mail_send_with_retry() {
    local __spooldeck_sent=0
    if (( $# == 0 )); then
        printf 'Usage: nftban_mail_send_with_retry <content> [recipient] [subject]\n' >&2
        return 2
    fi
    printf '%s\0%s\0%s' "${2:-}" "${3:-}" "$1" | __spooldeck 2 mail send-with-retry --null ||
        __spooldeck_sent=$?
    case $__spooldeck_sent in
        0) return 0 ;;
        3) return 1 ;; # it is in the spool
        @lost@) ;; # the command has reported it
        *) logger -p user.alert -t nftban-queue "mail lost, neither sent nor kept: ${3:-}" || : ;;
    esac
    return 2
}

nftban_mail_spool_status() {
    __spooldeck 1 mail spool list
}

nftban_mail_send_test() {
    __spooldeck 1 mail test ${1:+"$1"}
}

nftban_mail_detect_mta() {
    local __spooldeck_status
    __spooldeck_status=$(__spooldeck 1 mail status) || return 1
    printf '%s\n' "$__spooldeck_status" | sed -n 's/^transport *//p'
}

export -f __spooldeck nftban_queue_process_batch nftban_mail_spool_status nftban_mail_send_test \
    nftban_mail_detect_mta nftban_queue_add nftban_queue_process_next nftban_queue_count \
    nftban_queue_count_dlq nftban_queue_has_pending nftban_queue_dlq_list nftban_queue_dlq_retry \
    nftban_queue_dlq_purge nftban_mail_send nftban_mail_send_with_retry

else
    echo 'spooldeck: the functions need bash; commands for any shell: spooldeck queue add, spooldeck mail send' >&2
    false
fi
