// A process of BullMQ on Node in a game: adds jobs, runs them, or pauses and resumes their queue, until it is killed.
// Arguments: role, the server's socket, the file of lines that it adds. Modules are found by NODE_PATH.
const fs = require('fs');
const { Queue, Worker } = require('bullmq');

const [, , role, path, lines] = process.argv;
const connection = { path, maxRetriesPerRequest: null };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const any = (n) => Math.floor(Math.random() * n);

async function add() {
  const queue = new Queue('mails', { connection });
  for (;;) {
    const opts = { attempts: 2, backoff: { type: 'fixed', delay: 50 } };
    if (any(3) === 0) opts.delay = any(500);
    if (any(3) === 0) opts.priority = 1 + any(5);
    if (any(5) === 0) opts.lifo = true;
    const job = await queue.add('report', {}, opts);
    fs.appendFileSync(lines, `${job.id}\n`);
    await sleep(any(30));
  }
}

async function work() {
  const run = async (job) => {
    fs.appendFileSync(lines, `mails/${job.id}\n`);
    await sleep(any(60));
    if (job.id.endsWith('7')) throw new Error('broken in Node');
  };
  const options = { connection, concurrency: 2, lockDuration: 1000, stalledInterval: 500 };
  new Worker('mails', run, options).on('error', () => {});
}

async function pause() {
  const queue = new Queue('mails', { connection });
  for (;;) {
    await sleep(any(400));
    await queue.pause();
    await sleep(any(400));
    await queue.resume();
  }
}

({ add, work, pause })[role]();
