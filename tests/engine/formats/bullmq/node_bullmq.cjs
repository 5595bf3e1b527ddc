// BullMQ on Node for the tests: add jobs, work a queue, or report about it.
// Arguments: what to do, the server's socket, JSON. Modules are found by NODE_PATH.
const fs = require('fs');
const { FlowProducer, Queue, Worker, UnrecoverableError } = require('bullmq');

const [, , what, path, text] = process.argv;
const said = JSON.parse(text || '{}');
const connection = { path, maxRetriesPerRequest: null };

async function run(job) {
  fs.appendFileSync(said.ran, `${job.queueName}/${job.id}\n`);
  if (said.how === 'hang') await new Promise(() => setInterval(() => {}, 1000));
  if (said.how === 'fail') throw new Error('broken in Node');
  if (said.how === 'unrecoverable') throw new UnrecoverableError('never');
  return job.data;
}

async function work() {
  const options = { connection, name: 'node-1', lockDuration: 1000, stalledInterval: 500 };
  if (said.concurrency) options.concurrency = said.concurrency;
  const worker = new Worker('mails', run, options);
  worker.on('error', () => {});
  await worker.waitUntilReady();
  console.log('ready');
}

async function bench() {
  let left = said.jobs;
  const options = { connection, autorun: false, concurrency: said.concurrency };
  const worker = new Worker('mails', async () => {}, options);
  await worker.waitUntilReady();
  const done = new Promise((resolve) => worker.on('completed', () => --left || resolve()));
  const start = process.hrtime.bigint();
  worker.run();
  await done;
  console.log(Number(process.hrtime.bigint() - start) / 1e9);
  await worker.close();
}

async function withQueue(action) {
  const queue = new Queue('mails', { connection });
  console.log(JSON.stringify((await action(queue)) ?? null));
  await queue.close();
}

async function report(queue) {
  const jobs = {};
  for (const id of said.ids) {
    const job = await queue.getJob(id);
    jobs[id] = job && {
      state: await job.getState(), attemptsMade: job.attemptsMade, data: job.data,
      failedReason: job.failedReason ?? '', processedBy: job.processedBy ?? '',
      returnvalue: job.returnvalue, stacktrace: job.stacktrace,
      children: Object.values(await job.getChildrenValues()),
      logs: (await queue.getJobLogs(id)).logs, opts: job.opts,
    };
  }
  const workers = (await queue.getWorkers()).map((each) => each.rawname);
  return { jobs, workers, counts: await queue.getJobCounts(), paused: await queue.isPaused() };
}

const actions = {
  work, bench,
  add: () => withQueue(async (queue) => {
    const jobs = await queue.addBulk(said.map(([name, data, opts]) => ({ name, data, opts })));
    return jobs.map((job) => job.id);
  }),
  edit: () => withQueue(async (queue) => {
    const job = await queue.getJob(said.id);
    await job.updateData(said.data);
    await job.changePriority({ priority: said.priority });
    await job.updateProgress(50);
  }),
  metrics: () => withQueue(async (queue) => (await queue.getMetrics(said.state)).meta.count),
  flow: async () => {
    const flows = new FlowProducer({ connection });
    const children = said.map((data) => ({ name: 'child', queueName: 'mails', data }));
    const { job } = await flows.add({ name: 'parent', queueName: 'mails', data: 'all', children });
    console.log(JSON.stringify(job.id));
    await flows.close();
  },
  pause: () => withQueue((queue) => queue.pause()),
  resume: () => withQueue((queue) => queue.resume()),
  report: () => withQueue(report),
};
actions[what]();
