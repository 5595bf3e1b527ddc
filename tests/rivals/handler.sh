# What the rivals run for a task: says on the ledger when it begins and how it ends, one write each.
# Tasks named ...3 fail once, those named ...7 until the file $HEAL is there; those named ...5 take
# until the field opens the $GATE, and so may outlive the worker that began them.
say() { printf '%s %s %s %s\n' "$RIVAL" "$1" "$TASK_DESCRIPTION" "$2" 1<>"$LEDGER"; }

say begin "$$:$TASK_ID"
if [ "$TASK_PAYLOAD_FILE" != "$MAIL/$TASK_DESCRIPTION" ]; then say torn "$$:$TASK_ID"; fi
end=ok
case $TASK_DESCRIPTION in
*3) [ "$TASK_RETRIES" != 0 ] || end=fail ;;
*7) [ -e "$HEAL" ] || end=fail ;;
*5) [ -e "$HEAL" ] || timeout 30 head -c 1 0<>"$GATE" >/dev/null ;;
esac
say $end "$$:$TASK_ID"
[ $end = ok ]
