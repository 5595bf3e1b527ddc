#!/bin/sh
# A day's work on a queue by commands alone. It reads exit codes and JSON, no other output.
# Usage: day.sh FOLDER SPOOLDECK PYTHON
set -u
folder=$1 program=$2 python=$3
place=$folder/queue
cat > "$folder/config.yaml" <<END
queue: {max_retries: 0}
handlers:
  report: {command: ["true"]}
  sync: {command: ["sh", "-c", "test -e $folder/disk && exit 0; echo disk is full >&2; exit 1"]}
mail: {method: curl, sender: queue@example.org, relay: {host: 127.0.0.1, port: 9}}
END

# run CODE WORDS...: run a command, require its exit code, and keep its JSON in $folder/json.
run() {
    expected=$1
    shift
    "$program" --config "$folder/config.yaml" "$@" > "$folder/json" 2> "$folder/said"
    code=$?
    [ "$code" = "$expected" ] && return
    echo "$* ended with $code, expected $expected:" >&2
    cat "$folder/said" "$folder/json" >&2
    exit 1
}

# value EXPRESSION: print a value of the last JSON; `rows` are its lines, `it` is the last of them.
value() {
    "$python" -c 'import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
it = rows[-1] if rows else None
print(eval(sys.argv[2]))' "$folder/json" "$1"
}

# same EXPRESSION TEXT: require that a value is TEXT.
same() {
    found=$(value "$1") || exit 1
    [ "$found" = "$2" ] && return
    echo "$1 is $found, expected $2, in:" >&2
    cat "$folder/json" >&2
    exit 1
}

run 0 init "$place" --json

# Morning: 30 tasks, one line is wrong.
for number in 1 2 3 4 5 6 7 8 9 10; do
    echo "{\"kind\": \"report\", \"description\": \"report $number\"}"
    echo "{\"kind\": \"sync\", \"description\": \"feed $number\"}"
    echo "{\"kind\": \"sync\", \"description\": \"host $number\"}"
done > "$folder/batch"
echo '{"kind": 7}' >> "$folder/batch"
run 64 queue add --batch "$folder/batch" "$place" --json
same 'len(rows)' 30
run 75 wait --timeout 1 "$place"

# The worker: reports pass, the others fail for good.
run 0 queue work --until-idle "$place" --json
same '(it["done"], it["failed"])' '(10, 20)'
run 0 wait --until idle --timeout 30 "$place"
run 0 wait --until failed --timeout 30 "$place"
run 0 queue count-dlq "$place" --json
same 'it["count"]' 20

# Why: one cluster of 20.
run 0 clusters "$place" --json
same '(len(rows), it["count"], it["error"])' "(1, 20, 'disk is full')"

# The disk is repaired, and the feeds are tried again: a wrong number does nothing.
touch "$folder/disk"
run 0 replay "$place" --filter 'description~feed' --dry-run --json
same 'it["planned"]' 10
run 1 replay "$place" --filter 'description~feed' --apply 9 --json
"$program" --config "$folder/config.yaml" queue work "$place" 2> "$folder/worker" &
worker=$!
run 0 replay "$place" --filter 'description~feed' --apply 10 --canary 2 --rate 100 --json
same '(len(it["done"]), it["outcome"]["delivered"])' '(10, 10)'
kill "$worker"
wait "$worker"

# The hosts are purged, although they are young; that was wrong, and the purge is undone.
run 1 purge "$place" --filter 'description~host' --apply 10 --json
run 0 purge "$place" --filter 'description~host' --include-all --apply 10 --json
run 0 status "$place" --json
same '(it["tasks"]["dlq"], it["tasks"]["trash"])' '(0, 10)'
run 0 journal "$place" --json
operation=$(value 'rows[0]["op"]')
run 0 undo "$operation" "$place" --dry-run --json
same 'it["planned"]' 10
run 0 undo "$operation" "$place" --apply 10 --json
run 0 queue count-dlq "$place" --json
same 'it["count"]' 10

# A transport is suspended, without and with a reason, and resumed.
run 0 mail suspend curl "$place" --json
run 0 mail resume curl "$place" --json
run 0 mail suspend curl 'the relay moves' "$place" --json
run 2 mail status "$place" --json
same 'it["transports"]["curl"]["suspended"]["why"]' 'the relay moves'
run 0 mail resume curl "$place" --json

run 0 status "$place" --json
same '(it["tasks"]["dlq"], it["tasks"]["pending"])' '(10, 0)'
