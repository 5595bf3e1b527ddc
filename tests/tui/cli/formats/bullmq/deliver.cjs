// BullMQ on Node adds deliveries with the options of the queue. Arguments: the socket, JSON: a list
// of [name, data].
const { Queue } = require('bullmq');

const [, , path, text] = process.argv;

async function add() {
  const queue = new Queue('federation-delivery', {
    connection: { path, maxRetriesPerRequest: null },
    defaultJobOptions: {
      attempts: 5, backoff: { type: 'exponential', delay: Number(process.env.BACKOFF || 5000) },
      removeOnComplete: { age: 86400 }, removeOnFail: { age: 604800 },
    },
  });
  const jobs = await queue.addBulk(JSON.parse(text).map(([name, data]) => ({ name, data })));
  console.log(JSON.stringify(jobs.map((job) => job.id)));
  await queue.close();
}
add();
