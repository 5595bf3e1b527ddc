// A program of BullMQ that lives as long as a test: reads calls as lines of JSON [what, queue, ...arguments]
// and answers each with a line of JSON. Argument: the server's socket. Modules are found by NODE_PATH.
const readline = require('readline');
const { Queue, Worker } = require('bullmq');

const connection = { path: process.argv[2], maxRetriesPerRequest: null };
const queues = {};
const queueOf = (name) => (queues[name] ??= new Queue(name, { connection }));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Run a worker until no job waits any more, at least `least` ms; the ids in the order in which they ran.
async function work(name, how, least, most, more = {}) {
  const queue = queueOf(name);
  const ran = [];
  const run = async (job) => {
    ran.push(job.id);
    if (how === 'fail') throw new Error('broken in Node');
    return null;
  };
  const options = { connection, concurrency: 1, lockDuration: 30000, stalledInterval: 30000, drainDelay: 1, ...more };
  const worker = new Worker(name, run, options);
  worker.on('error', () => {});
  const start = Date.now();
  while (Date.now() < start + most) {
    await sleep(10);
    if (Date.now() < start + least) continue;
    const counts = await queue.getJobCounts('wait', 'prioritized', 'active');
    if (!Object.values(counts).some((count) => count > 0)) break;
  }
  await worker.close(true);
  return ran;
}

const actions = {
  add: async (name, jobs) => {
    const ids = [];
    for (const [data, opts] of jobs) ids.push((await queueOf(name).add('job', data, opts)).id);
    return ids;
  },
  pause: (name) => queueOf(name).pause(),
  resume: (name) => queueOf(name).resume(),
  isPaused: (name) => queueOf(name).isPaused(),
  retry: async (name, id) => (await queueOf(name).getJob(id)).retry('failed'),
  rerun: async (name, id) => (await queueOf(name).getJob(id)).retry('completed'),
  promote: async (name, id) => (await queueOf(name).getJob(id)).promote(),
  drain: (name) => queueOf(name).drain(true),
  clean: (name, state) => queueOf(name).clean(0, 1000, state),
  job: async (name, id) => {
    const job = await queueOf(name).getJob(id);
    return job && { state: await job.getState(), attempts: job.attemptsMade, data: job.data };
  },
  schedule: async (name, key, repeat, template) =>
    (await queueOf(name).upsertJobScheduler(key, repeat, { name: 'tick', ...template })).id,
  repeat: async (name, repeat, data) => (await queueOf(name).add('tick', data, { repeat })).id,
  // A queue writes its version when it is opened: the next test opens its own.
  forget: async () => {
    await Promise.all(Object.values(queues).map((queue) => queue.close()));
    for (const name of Object.keys(queues)) delete queues[name];
  },
  next: (name, calls) => calls.map(([pattern, tz, utc, after]) => {
    const { CronExpressionParser, parseExpression } = require('cron-parser');
    const parse = parseExpression ?? ((text, options) => CronExpressionParser.parse(text, options));
    try {
      return parse(pattern, { tz, utc, currentDate: new Date(after) }).next().getTime();
    } catch (error) {
      return null;
    }
  }),
  work,
};

// A worker that is closed at once ends its own connection while it waits for a job. On a slow machine
// BullMQ 5.81 reports this by an event that no listener can get any more, which would end the process.
process.on('uncaughtException', (error) => {
  if (error.message !== 'Connection is closed.') throw error;
});

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [what, ...said] = JSON.parse(line);
    let answer;
    try {
      answer = { value: (await actions[what](...said)) ?? null };
    } catch (error) {
      answer = { error: String(error && error.message) };
    }
    console.log(JSON.stringify(answer));
  }
  process.exit(0);
}
main();
