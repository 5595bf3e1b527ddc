#!/bin/bash
# A small program with the habits of the one whose contract the spool follows: a lock that is looked
# at and then written, files rewritten where they lie and a line at a time, nothing synced, a release
# that asks nobody whose lock it is. Written from a description of what that program does.
#
#   standin.sh ROOT next             handle the first due task; 0 done, 1 nothing or failed, 2 locked
#   standin.sh ROOT add DESCRIPTION  a new task, written where it will lie; prints its id
#   standin.sh ROOT retry            the first dead task back to pending
set -u
root=$1
queue=$root/queue lock=$root/run/queue.lock
most=3

acquire() {
    local pid=
    if [[ -e $lock ]]; then
        read -r pid <"$lock"
        if [[ $pid =~ ^[0-9]+$ ]] && kill -0 "$pid" 2>/dev/null; then return 2; fi
        rm -f "$lock"
    fi
    mkdir -p "${lock%/*}"
    {
        echo "$$"
        date +%s
    } >"$lock"
}

task_lines() {
    local name
    for name in ID TYPE DESCRIPTION CREATED_EPOCH RETRIES NEXT_ATTEMPT_EPOCH LAST_ERROR PAYLOAD_FILE; do
        name=TASK_$name
        printf '%s="%s"\n' "$name" "${!name}"
    done
}

due_first() {
    local path due now
    now=$(date +%s)
    while read -r path; do
        due=$(grep '^TASK_NEXT_ATTEMPT_EPOCH=' "$path" 2>/dev/null | cut -d '"' -f 2)
        if ((${due:-0} <= now)); then
            printf '%s\n' "$path"
            return
        fi
    done < <(find "$queue/pending" -type f -name '*.task' 2>/dev/null | sort)
}

next() {
    local path work
    acquire || return 2
    path=$(due_first)
    work=$queue/work/${path##*/}
    if [[ -z $path ]] || ! mv "$path" "$work" 2>/dev/null; then
        rm -f "$lock"
        return 1
    fi
    . "$work"
    export TASK_ID TASK_TYPE TASK_DESCRIPTION TASK_CREATED_EPOCH TASK_RETRIES TASK_PAYLOAD_FILE
    if sh "$HANDLER"; then
        rm -f "$work" "$lock"
        return 0
    fi
    TASK_RETRIES=$((TASK_RETRIES + 1)) TASK_LAST_ERROR="failed"
    if ((TASK_RETRIES >= most)); then
        TASK_NEXT_ATTEMPT_EPOCH=0
        {
            task_lines
            printf 'TASK_DLQ_EPOCH="%s"\nTASK_DLQ_REASON="max_retries_exceeded"\n' "$(date +%s)"
        } >"$work"
        mv "$work" "$queue/dlq/"
    else
        TASK_NEXT_ATTEMPT_EPOCH=$(($(date +%s) + 1))
        task_lines >"$work"
        mv "$work" "$queue/pending/"
    fi
    rm -f "$lock"
    return 1
}

add() {
    TASK_TYPE=job TASK_DESCRIPTION=$1 TASK_CREATED_EPOCH=$(date +%s) TASK_RETRIES=0
    TASK_NEXT_ATTEMPT_EPOCH=0 TASK_LAST_ERROR='' TASK_PAYLOAD_FILE=$root/mailspool/$1
    TASK_ID=$(date -u +%Y%m%dT%H%M%SZ)-job-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
    task_lines >"$queue/pending/$TASK_ID.task"
    echo "$TASK_ID"
}

retry() {
    local path
    path=$(find "$queue/dlq" -type f -name '*.task' | sort | head -n 1)
    [[ -n $path ]] || return 1
    . "$path" 2>/dev/null || return 1
    [[ -n ${TASK_ID-} ]] || return 1
    TASK_RETRIES=0 TASK_NEXT_ATTEMPT_EPOCH=0 TASK_LAST_ERROR=''
    [[ -e $path ]] || return 1
    task_lines >"$path"
    mv "$path" "$queue/pending/"
}

"${@:2}"
