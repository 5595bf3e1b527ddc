"""The command table: all commands of the command line, their arguments and their help.

Each row is a command or a group of commands; an indented row is one of its arguments. A further
indent continues the row above.

    WORDS | MODULE:FUNCTION | SUMMARY       a command; the module is below `tui.cli`. `+listing`
                                            after it: the command only prints
    WORDS | - | SUMMARY                     a group of commands; its commands are below
    WORDS @NAME @NAME | ...                 its first arguments are the shared ones of these names
        name X | HELP                       an argument that the help calls X: X... one or more,
                                            [X] may be missing, [X...] any number
        name X... +rest | HELP              all other words, also those with a dash
        --name | HELP                       an option without a value
        --name X | HELP                     an option with a value: X... may be repeated, {a,b} is a
                                            or b, X:count is a number from 1, X:number from 0,
                                            X:duration a time from 1s, X:wait from 0
        --name [X] | HELP                   the value may be missing, it is - then
        --name X=D | HELP                   the default is D; without =D it is "" for a text, None
                                            for a number
        --name X +required +dest:other      must be given; the function reads it as `other`
        @NAME @NAME                         the shared arguments of these names
    @NAME ROW                               shared arguments: one row, or several indented rows
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def load_function(where: str) -> Callable[..., Any]:
    """Import and return the function of a "MODULE:FUNCTION" text of this module."""
    module, name = where.split(":")
    function: Callable[..., Any] = getattr(import_module(f"tui.cli.{module}"), name)
    return function


WITHOUT_CONFIGURATION = {
    "shell-init": "formats.nftban.shell_and_units:shell_init",
    "completion": "completion:completion",
    "info": "info:info",
}
"""Commands that login files run, and the one that shows what is wrong with a configuration. Their
functions must be defined even if it is broken; each of them reads it when it is called."""

REPORT_LOST_MAIL = "formats.nftban.mail.send:report_lost_mail"
"""The function that reports a mail of a command that could not even start, so that none is lost."""

DEMO_AS_TEXT = "formats.nftban.demo_text:run_as_text"
"""The function that runs an operator's commands on the demo where there is no terminal."""

COMMAND_TABLE = """
@id id ID
@name name NAME
@word word WORD | an address, an id or a Message-Id
@place place [PLACE]=None | the queue; default: as configured
@places places [PLACE...] | the queues; default: as configured
@operation words [OP|PLACE...] | an operation, and the queue; default: the queue as configured
@filter --filter TEXT | only what matches this filter
@rows --filter WORDS | only rows that contain these words
@state --state WORD | only tasks in this state
@since --since TIME | 14:00, yesterday 18:00, -2h
@json --json | print JSON
@json-lines --json | one JSON object a line
@until-idle --until-idle | end when nothing is due
@dry-run --dry-run | only print what would happen
@plan --dry-run | only print the plan and its count
@count --apply N:count=0 | apply, if exactly N would be acted on (in JSON: acted_on)
@reason --reason TEXT | reason, for the journal
@apply @reason @plan @count @json
@verb
    @place @filter @state
    --id ID... | only this task; may be repeated
    --limit N:count=0 | only the N oldest of these tasks
    @apply
@pace
    --rate N|now | tasks per second (2); now: no limit
    --canary N,M | sizes of the first batches (1,10), or none
    --stop-same N:number | stop if an error recurs N times (2); 0: never
    --stop-share PCT/M | stop if PCT of the last M failed (10/20)
    --stop-pending K:count | stop if more than K tasks are pending
    --rest {stay,hold}=stay | after a stop, the rest stays where it is or is held
    --timeout TIME:duration=120 | wait TIME for each outcome: 90s, 5m (120s)
@suspicious
    --include ID... | also this task, excluded by default; may be repeated
    --include-all | also all tasks excluded by default
@console
    --read-only | allow no changes
    --theme NAME | colour theme
    --mouse | use the mouse: rows, tabs, hints, wheel
    --wire N:count=0 | send at most N bytes a second
    --refresh TIME:wait | change the screen once in TIME without a key: 30s
    --open SCREEN | the first screen
@content
    content [CONTENT]=None | a text, the path of a file below the allowed folders, or - for stdin
    recipient [RECIPIENT] | one address, or several with commas; default: as configured
    --literal | a CONTENT of - is text, not stdin
    --null | for scripts: read RECIPIENT, SUBJECT and CONTENT from stdin, with a NUL between them
console | open_console:open_console | open the console on these places
    places [PLACE...] | a folder with a queue, a Kannader spool, a ZGB database, or a URL
    --version | print the version and exit
    @console
demo | open_console:demo | make temporary places with traffic and open the console; without a
        terminal: print an operator's commands on them
    --tasks N:count=400 | tasks at the start (400)
    --keep DIR | make the places in DIR and keep them
    --redis | also BullMQ queues, on a Redis or Valkey server made for the demo
    --federation | also three servers that deliveries go to; one dies and comes back
    --zmailer | also a ZMailer spool with its scheduler and agents, without --redis, --federation
    @console
find @json-lines | print.find:find +listing | list the queues of this host, and why one is not
        opened; exit 1 if there are none, or if a lookup gave no answer
info @place @json | info:info | versions, settings in force and their sources, paths: for a report,
        without passwords
status @place @json | queue.status:status | print a summary of a place; exit 0 OK, 1 needs
        attention, 2 unreadable
    --exact | read every task; else of more than 5,000 only a sample, and count the others
overview @places @filter @json | print.overview:overview | one line per place, then the alerts; exit
        0 OK, 1 needs attention, 2 unreadable
    --over TIME:duration=0 | watch for TIME before printing: 90s, 5m
    --at TIME | as recorded at TIME: 14:00, =-2h
top @places @rows @json | print.workers:top | the busiest kinds of tasks, repeated until Ctrl-C;
        without a terminal printed once
    --interval TIME:duration=5 | TIME between two screens (5s)
    --times N:number | end after N screens; 0: never
wait @place @json | print.wait:wait | wait until a task, or a queue, is done, failed or idle; exit 0
        reached, 1 a task failed, 75 the time is over
    --id ID... | wait for this task; may be repeated; else for the queue
    --until {done,idle,failed} | done: no task pending or active; idle: none due or active; failed:
        one is dead
    --timeout TIME:wait | wait at most TIME: 90s, 5m; else without end; 0: look once
groups @place @filter @state @json | print.groups:groups +listing | tasks by queue, kind, group,
        destination, sender or account: counts by state, oldest, next due, last error
    --by WORD | queue, kind, group, destination, sender, sender-domain or account; for ZMailer also
        channel, host, thread or ring; default: the first of them with several groups
    --all | list all groups, not only the 200 largest
clusters @place @filter @state @json | print.groups:clusters +listing | failed tasks grouped by
        error, and whether each error still happens
workers @places @rows @json | print.workers:workers | workers and their tasks, the worst first; exit
        0 OK, 1 needs attention, 2 unreadable
kinds @places @rows @json | print.workers:kinds | rate, failures, wait and run of each kind of task
        over the last 10 minutes
locks @places @rows @json | print.locks:locks | locks, their holders and waiting tasks; exit 0 OK, 1
        needs attention, 2 unreadable
transports @place @rows @json | print.transports:transports | state and latest errors of each mail
        transport
destinations @reason @plan @count @json | print.destinations:destinations | health and tasks of each
        destination of deliveries; exit 0 OK, 1 one is unhealthy
    words [VERB|ORIGIN|PLACE...] | block, unblock or probe an ORIGIN; else list those of a PLACE
log @place @filter | print.log:log +listing | the log lines of a place, merged by time
    --id ID | only lines about this task, and what its handler printed
    --level LEVEL | minimum level
    @since
    --lines N:count=200 | at most N lines (200)
    --follow | keep following
    @json-lines
control | plans.control:control | list the controls of a whole queue; with NAME: preview or apply
        one
    words [NAME|PLACE...]
    --target T | object of the control, if it needs one
    --value V | new value, if it needs one
    @reason @dry-run @count @json
edit @id @place | plans.edit_note:edit | change the description, due time, recipient, priority or
        data of a task; exit 1 if the task is gone or has changed
    --description TEXT | the new description
    --due TIME | 14:00, +2h, tomorrow 06:00, now
    --to ADDRESS +dest:destination | the new recipient
    --priority N | the new priority, as its store counts it
    --data FILE | a file with the new data as JSON; -: the standard input
    @dry-run
    --apply 1:count=0 | apply to this one task
    @json
note @id | plans.edit_note:note | write a note on a task (a purge then excludes the task); TEXT -
        deletes its notes
    text TEXT | - removes the note
    @place @json
notes @place @json-lines | plans.edit_note:list_notes +listing | list the notes that operators wrote
        on tasks
retry @verb | plans.verbs:retry | retry dead tasks now
replay @verb @pace | plans.verbs:replay | retry dead tasks: first a few, then at a steady rate;
        stop if they fail again
rerun @verb @pace | plans.verbs:rerun | run finished tasks again: first a few, then at a steady
        rate; stop if they fail
purge @verb @suspicious | plans.verbs:purge | move tasks to the trash (dead ones, unless --state is
        given)
hold @verb | plans.verbs:hold | hold tasks until they are released
release @verb | plans.verbs:release | return held tasks to pending
promote @verb | plans.verbs:promote | make waiting tasks due now
kill @verb | plans.verbs:kill | move abandoned active tasks to the dead-letter queue
bounce @verb | plans.verbs:bounce | give up waiting tasks; each sender gets a report
expire @verb | plans.verbs:expire | give up waiting tasks as too old; each sender gets a report
reroute @verb | plans.verbs:reroute | route mail again, as new messages; cannot be undone
restore @verb | plans.verbs:restore | move purged tasks out of the trash, to where they were
expunge @verb @suspicious | plans.verbs:expunge | delete tasks of --state WORD permanently: cannot
        be undone
undo @operation @apply | plans.journal:undo_operation | undo operation OP; without OP: list what can
        be undone
journal @operation @since | plans.journal:journal | list operations: who did what; with OP: one in
        full
    --resume | continue OP, which was interrupted
    --abandon | abandon OP, which was interrupted: change nothing more
    @apply
trash | - | purged tasks: list, restore, delete
trash list @place @json-lines | plans.trash:list_trash +listing | list the tasks in the trash: since
        when, and from which state
trash restore | plans.verbs:restore_named | restore these tasks to where they were; a PLACE must
        contain a /
    ids ID...
    @place @reason @plan @json
trash expunge @place @dry-run @json | plans.trash:sweep | delete tasks that were in the trash longer
        than the retention, permanently
trash sweep @place @dry-run @json | plans.trash:sweep | the same as `trash expunge`
init | formats.nftban.commands:init | make the folders of a new queue
    place DIR
    --exclusive | no other program uses this queue: store due times as file times (faster)
    @json
doctor @place @json | queue.doctor:doctor | check a place: problems, and the command that repairs
        each; exit 0 none, 1 some
mail | - | send mail; manage mail that could not be sent
mail send @content @place @json | formats.nftban.mail.send:send | send CONTENT in one attempt; exit
        0 accepted by the transport, 1 not
    --subject TEXT | default: as configured, else PREFIX Report from HOST
mail send-with-retry @content | formats.nftban.mail.send:send_with_retry | send CONTENT with
        retries; if all fail, spool and queue it; exit 0 accepted by the transport, 1 spooled (3
        with --null)
    subject [SUBJECT]
    @place @json
mail setup | formats.nftban.mail.setup_mail:setup_mail | set the notification address in
        conf.d/mail.conf.local; other lines are kept, a backup is made
    email [EMAIL]
    @place
    --show | only print the present settings of the mail
    --all | also enable each trigger: health, bans, logins
    --test | then send a test mail to EMAIL
    --dry-run | only print what would be written
    @json
mail status @place @json | formats.nftban.mail.send:status | active transport and mail spool; exit 0
        OK, 1 no transport, 2 suspended or not running
mail test | formats.nftban.mail.send:test | send one mail and print each step; exit 0 accepted by
        the transport, 1 not
    email [EMAIL] | default: as configured
    @place @json
    --transport NAME | use this transport, even if it is suspended
    --dry-run | every step except the sending
mail spool | - | spooled mail that could not be sent yet
mail spool list @place @json-lines | formats.nftban.mail.spool:list_spool +listing | list the
        spooled mails
mail spool show @id @place @json | formats.nftban.mail.spool:show_spooled | print one mail as text:
        recipient and content
mail spool retry | formats.nftban.mail.retry:retry_spooled | queue one task for each of these mails,
        due now; exit 1 if one could not be queued
    ids [ID...]
    @place @json
    --all | all mails without a task, in the DLQ or in backoff, not refused permanently
    --refused | with --all: also mails that a server refused permanently (5xx)
    --to ADDRESS | with one ID: send it to this recipient
mail suspend @name | setup.suspend:suspend | stop sending by transport NAME until it is resumed
    reason [REASON]
    @place @json
mail resume @name @place @json | setup.suspend:resume | send by transport NAME again
mta | - | mail servers: those of this host; where a mail went, why it waits, how old the queue is
mta instances @json-lines | print.find:instances +listing | list the mail servers of this host, as
        places; exit 1 if one does not answer
mta trail @word @place @since @json | mta.trail:trail +listing | where a mail went, by the logs:
        arrival, attempts, answers, requeue, bounce, removal; exit 1 if they have nothing
mta ages @place @filter @state @json | mta.ages:ages +listing | open recipients of the waiting mail
        by age and domain, as qshape prints them; by another key the mails
    --by WORD=destination | destination, sender, sender-domain, account, group, kind or error
mta why @word @place @json-lines | mta.why:why +listing | why mail waits: reason, next try, account,
        what to do; exit 1 if none waits
kannader | - | a Kannader spool: make one, add mail, send it
kannader init | formats.kannader.commands:init | make the folders of a Kannader spool
    place DIR
    @json
kannader enqueue | formats.kannader.commands:enqueue | add a mail to the spool; print one id per
        recipient
    words FILE... | more recipients, then the file with the mail (- for stdin), then the PLACE
    --from A +required +dest:sender | sender; <> is the null sender
    --to B... +required +dest:recipients | recipient; may be repeated
    @json
    --wire | FILE has SMTP line ends and dot stuffing
kannader work @place @until-idle @json | formats.kannader.commands:work | send mails until stopped
    --concurrency N:count=0 | N mails at a time (4)
kannader recover @place @dry-run @json | formats.kannader.commands:recover | recover interrupted
        mail, repair what is safe
    --anyway | even while a Kannader is running
shell-init | formats.nftban.shell_and_units:shell_init | print bash functions with the names of the
        contract
completion | completion:completion | print the completion script of a shell
    shell {bash,zsh,fish}
    words [WORD...] | with --values: the words of the command line so far
    --values {places,states,ids,operations,transports} | print what can complete the last WORD; the
        scripts use this
install-units | formats.nftban.shell_and_units:install_units | write systemd units into DIR
    folder DIR
    @place @json
bullmq | - | BullMQ queues on a Redis or Valkey server: run jobs, add one, check it
bullmq work @place @until-idle @json | formats.bullmq.worker:work | run the jobs of queues that have
        a handler, until stopped
    --queue Q... +dest:queues | only this queue; may be repeated
    --concurrency N:count=0 | N jobs at a time, of each queue too; else as the handlers say
bullmq add | formats.bullmq.worker:add | add a job and print its id
    queue QUEUE | name of the queue
    name NAME | name of the job
    @place @json
    --data JSON={} | data of the job; - reads it from stdin
    --delay TIME:wait | start it after TIME: 500ms, 90s, 15m
    --priority N:number | 1 is first; without one it is before all others
    --attempts N:count | run it at most N times (1)
    --backoff DELAY | between attempts: 5s, exponential:1s, exponential:1s:0.5 (jitter)
    --id ID | its id; else the next number of the queue
bullmq schedulers @reason @plan @count @json-lines | formats.bullmq.schedulers:schedulers |
        schedules with last and next run; exit 0 all go on, 1 one is stopped or broken
    words [VERB|QUEUE/KEY|PLACE...] | run (one more job now), remove or edit a QUEUE/KEY; else list
        those of a PLACE
    --queue Q... +dest:queues | only of this queue; may be repeated
    --pattern CRON | edit: run by this pattern
    --every TIME | edit: run each TIME, such as 10m, instead
    --tz ZONE | edit: time zone of the pattern, or none
    --limit N +dest:runs | edit: N runs in all, or none
    --end TIME | edit: no run after TIME, or none
bullmq doctor @place @json | queue.doctor:doctor | problems of the server and its queues; exit 0
        none, 1 some
zmailer | - | ZMailer: its scheduler, transport agents, checks of a configuration
zmailer check | formats.zmailer.scheduler:check | all errors of a scheduler.conf, with line and
        column; exit 0 none, 1 some
    conf CONF | the file
    --diff OLD | print what differs from this file, instead of the clauses
    --spool POSTOFFICE | with --diff: also the waiting threads whose settings change
    @json
zmailer doctor @place @json | queue.doctor:doctor | problems of a spool and its scheduler; exit 0
        none, 1 some
zmailer why | formats.zmailer.scheduler:why | the clauses and settings of a channel/host; exit 1 if
        it has no command
    target CHANNEL/HOST | such as smtp/mx.example.org
    -f,--conf FILE | the file; else scheduler.conf or scheduler.cf in $MAILSHARE
    @json
zmailer scheduler | formats.zmailer.scheduler:scheduler | run the scheduler of a ZMailer spool:
        detached, or with -i or -v in the foreground
    words OPTION... +rest | the letters of scheduler(8zm): -d -i -v -F -H -n -Q -S -V -W, -f CONF,
        -E FILES,SECONDS, -L LOG, -l STATISTICS, -M 1|2, -N FILES, -p CHANNEL/HOST, -P POSTOFFICE,
        -q DUMP, -R STARTS, -Z ZMAILER.CONF; --exact: MAILQ answers as that of ZMailer 3.0.1
zmailer agent | formats.zmailer.agent:agent | serve the jobs of a scheduler on standard input, in
        the folder transport/ of a spool
    kind {smtp,hold,errormail} | smtp: to mail servers; hold: until a condition is met; errormail:
        back to the sender
    words WORD... +rest | -c CHANNEL; smtp also -p PORT, -h HELO, -l LOG, -T SECONDS; then the host,
        if jobs name none
zmailer statistics | formats.zmailer.scheduler:statistics | numbers and delays in a statistics log,
        by channel and host
    file FILE | the log that the scheduler writes with -l, in its old or new form
    @json
zmailer mailq | formats.zmailer.mailq:mailq +listing | the queue of a scheduler, as mailq(1zm)
        prints it
    words WORD... +rest | ADDRESS: a host, URL or rendezvous file; -p PORT or socket, -U USER,
        --password-file FILE, -c CHANNEL, -h HOST, -v, or -Q, -QQ, -QQQ, -QQQQ: threads, groups,
        totals, counters
federation | - | signed and encrypted deliveries to other servers, by two BullMQ queues
federation work @place @until-idle @json | formats.bullmq.federation:work | run deliveries and
        health checks, until stopped
federation enqueue | formats.bullmq.federation:enqueue | add a delivery and print its id
    server SERVER | URL of the server to deliver to
    name NAME | name of the job: deliver-post, deliver-follow
    @place @json
    --payload JSON +required | a JSON object with a method; - reads it from stdin
    --path PATH | path at the server; else that of the name
    --row KEY | key of its row in the outbox; else it has none
federation keys @place @json | formats.bullmq.federation:keys | print public keys and fingerprints,
        ours and those of known servers; make ours if there are none
    --forget SERVER | forget the keys of SERVER, which has new ones
federation doctor @place @json | formats.bullmq.federation:doctor | problems of keys,
        servers, outbox and queues; exit 0 none, 1 some
zgb | - | a ZGB mail queue: make one, queue mails, send them, check it
zgb init | formats.zgb.commands:init | make a new, empty database; it sends nothing yet
    place DB
    @json
zgb enqueue | formats.zgb.commands:enqueue | queue the mails of a registration
    number NUMBER:number | number of the registration
    @place
    --type {user,organizer} | only this one
    @json
zgb work @place @json | formats.zgb.commands:work | send the mails that the rate limit allows: one
        run, as from cron each minute; exit 2 if another run is active
    --loop | repeat until stopped
    --quiet | print nothing if OK or if another run is active
zgb doctor @place @json | formats.zgb.commands:doctor | why mails do not arrive, and the repair;
        exit 0 OK, 1 needs attention
queue | - | commands for one queue
queue status @place @json | queue.status:status | the same as `spooldeck status`
    --exact | read every task; else of more than 5,000 only a sample, and count the others
queue add | formats.nftban.commands:add | add a task and print its id
    kind [TYPE] | kind of the task
    description [DESCRIPTION] | text of one line; '' for none, if a PLACE follows
    payload [PAYLOAD] | absolute path of a file in the mail spool; '' for none
    @place @json
    --data FILE | data for the handler, which gets it on stdin; -: read it from stdin
    --delay TIME:wait | wait at least TIME before the first run: 90s, 15m, 2h; at most 7d
    --at TIME | do not run it before TIME: 14:00, tomorrow 06:00
    --key KEY | add nothing while a task with this key waits: exit code 2
    --batch [FILE|-] | one task for each line of FILE, or of stdin: a JSON object with kind,
        description, payload, data, delay, at, key; or the first three separated by tabs; empty
        lines are skipped
    --strict | with --batch: add nothing behind a refused line
queue process-next @place @json | formats.nftban.work:process_next | run the next due task, if any
    --quiet | print nothing if the exit code is 1 or 2
    --timer | for a timer: exit codes 1 to 3 become 0; the log has the reason
queue work @place @json | formats.nftban.work:work | run tasks until stopped
    --concurrency N:count=1 | N tasks at a time (1)
    @until-idle
queue list @place @state @filter @json-lines | queue.list_tasks:list_tasks +listing | list tasks
    --csv | print CSV with the columns of an export
queue recover @place @json | formats.nftban.recover:recover | free a queue whose worker is stuck or
        gone
    --dry-run | only print what would be done
    --yes | do not ask for the PID
    --seen LOCK | only if the lock is still LOCK
    --hold ID... | hold this active task because its work is done; it is not run again
queue corrupt | - | quarantined files
queue corrupt list @place @json-lines | formats.nftban.corrupt:list_corrupt +listing | list the
        quarantined files and the reason for each
queue corrupt put-back | formats.nftban.corrupt:put_back | put repaired files back
    names NAME... | names as `queue corrupt list` prints them
    @place @json
queue count @place @json | queue.list_tasks:count | print the number of pending tasks
queue count-dlq @place @json | queue.list_tasks:count_dlq | print the number of dead tasks
queue metrics @place @json | formats.nftban.commands:show_metrics | print the current metrics
queue dlq | - | the dead-letter queue
queue dlq list @place @json-lines | formats.nftban.dlq:list_dead +listing | list dead tasks
queue dlq show @id @place @json | formats.nftban.dlq:show | print one dead task in full
queue dlq retry | formats.nftban.dlq:retry | move dead tasks to pending
    ids ID...
    @place @json
queue dlq retry-all @place @dry-run @json | formats.nftban.dlq:retry_all | move all dead tasks to
        pending
queue dlq expunge | formats.nftban.dlq:expunge | delete dead tasks older than DAYS permanently:
        cannot be undone
    days [DAYS]=None | default: the retention time
    @place @dry-run @json
queue dlq purge | formats.nftban.dlq:expunge | the same as `queue dlq expunge`, the contract's word:
        deletes permanently, unlike `spooldeck purge`
    days [DAYS]=None | default: the retention time
    @place @dry-run @json
"""

USAGE = "spooldeck [PLACE ...] | COMMAND ..."

HELP_TEXT = """\
An operator console for mail and task queues, with its own queue engine.

  spooldeck [PLACE ...]         open the console on these or the configured places
  spooldeck demo                make temporary places with traffic, open the console
  spooldeck find                queues of this host, and why one is not opened
  spooldeck info [PLACE]        versions, settings and their sources, for a report
  spooldeck status [PLACE]      print a summary; exit 0 OK, 1 needs attention,
                                2 unreadable
  spooldeck overview [PLACE ...] | workers | kinds | groups | clusters | locks
            | transports | destinations | log [PLACE]
                                print what the console's screens show (--json)
  spooldeck top [PLACE ...]     the busiest kinds of tasks, repeated
  spooldeck wait [PLACE]        wait for tasks (--id) or a queue: done, idle, failed
  spooldeck control [NAME] [PLACE]
                                controls of a whole queue: pause, rate;
                                --dry-run, then --apply 1
  spooldeck edit ID [PLACE]     change description, due time, recipient,
                                priority or data
  spooldeck note ID TEXT [PLACE] | notes [PLACE]
                                notes of operators on tasks
  spooldeck init DIR            make the folders of a new queue
  spooldeck doctor [PLACE]      problems and their repair; exit 0 none, 1 some
  spooldeck retry | replay | rerun | purge | hold | release | promote | kill
            | bounce | expire | reroute | restore | expunge [PLACE]
                                change tasks: --dry-run shows the plan, --apply N
                                applies it
  spooldeck undo [OP] [PLACE] | journal [OP] [PLACE]
                                undo an operation; operations: who did what
  spooldeck trash list | restore ID... | expunge
                                purged tasks
  spooldeck queue ...           status, add, process-next, work, list, count,
                                count-dlq, metrics, dlq, recover, corrupt
  spooldeck mail ...            send, send-with-retry, setup, status, test,
                                spool list | show | retry, suspend, resume
  spooldeck kannader ...        init, enqueue, work, recover (a Kannader spool)
  spooldeck zgb ...             init, enqueue, work, doctor (a ZGB mail queue)
  spooldeck bullmq ...          work, add, schedulers, doctor (BullMQ on Redis)
  spooldeck zmailer ...         scheduler, agent, mailq, check, why, doctor,
                                statistics
  spooldeck mta ...             instances, trail, why, ages (mail servers)
  spooldeck federation ...      work, enqueue, keys, doctor (deliveries to servers)
  spooldeck shell-init          bash functions of the contract: eval "$(...)"
  spooldeck completion SHELL    completion for bash, zsh or fish
  spooldeck install-units DIR   write systemd units, tmpfiles and logrotate files

spooldeck help COMMAND (or COMMAND --help) describes one command, with an example
and its exit codes. The PLACE is the last word of a command; --root PLACE and
--config FILE may be anywhere. Write a place with the name of a command as ./NAME.
SPOOLDECK_PLACES (separated by blanks) and SPOOLDECK_CONFIG in the environment name
places and the configuration file for a command line that names none.
"""
