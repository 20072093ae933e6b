// BullMQ on a Redis of its own. Reads a plan from each line of standard input, works for one slot, and answers
// with one line of JSON. Ends, and Redis with it, when standard input does.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const [redis, port, folder, appendfsync, text] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };

// If this process is killed, the kernel ends Redis too.
const server = spawn(
  'setpriv',
  ['--pdeathsig', 'KILL', redis, '--port', port, '--bind', '127.0.0.1', '--dir', folder, '--save', '',
    '--appendonly', 'yes', '--appendfsync', appendfsync, '--rdbcompression', 'no',
    '--auto-aof-rewrite-min-size', '512mb'],
  { stdio: ['ignore', 'ignore', 'inherit'] },
);
server.on('error', (error) => { throw error; });
server.on('exit', () => process.exit(1));

const queue = new Queue('tasks', { connection, defaultJobOptions: { removeOnComplete: true } });
queue.on('error', () => {}); // Redis may not listen yet; the client tries again.
await queue.waitUntilReady();
const statistics = new Redis(connection);

let worker;
let next = 0;
const waiting = new Map();

// A cycle is over when the job is completed in Redis and the producer knows.
async function cycle() {
  const number = next++;
  const completed = new Promise((resolve) => waiting.set(number, resolve));
  await queue.add('task', { number, text });
  await completed;
}

async function prepare(in_flight) {
  if (worker?.concurrency !== in_flight) {
    await worker?.close();
    worker = new Worker('tasks', async () => 'done', { connection, concurrency: in_flight, removeOnComplete: { count: 0 } });
    worker.on('completed', (job) => {
      waiting.get(job.data.number)?.();
      waiting.delete(job.data.number);
    });
    worker.on('error', (error) => { throw error; });
    await worker.waitUntilReady();
  }
}

// Half of the time jobs are added; then they are all worked on.
async function fill({ in_flight, seconds }) {
  await prepare(in_flight);
  await worker.pause();
  const start = performance.now();
  const first = next;
  const added = [];
  await Promise.all(Array.from({ length: in_flight }, async () => {
    while (performance.now() < start + seconds * 500) {
      const number = next++;
      added.push(new Promise((resolve) => waiting.set(number, resolve)));
      await queue.add('task', { number, text });
    }
  }));
  worker.resume();
  await Promise.all(added);
  const elapsed = (performance.now() - start) / 1000;
  return { seconds: elapsed, operations: next - first, latencies_us: [], redis_calls: await calls() };
}

async function work({ in_flight, seconds, rate }) {
  await prepare(in_flight);
  const start = performance.now();
  const latencies_us = [];
  const client = rate
    ? async (first) => {
        const count = rate * seconds;
        for (let place = first; place < count; place += in_flight) {
          const due = start + (place / rate) * 1000;
          // Timers may fire a little early.
          while (due > performance.now()) await sleep(Math.ceil(due - performance.now()));
          await cycle();
          latencies_us.push(Math.round((performance.now() - due) * 1000));
        }
      }
    : async () => {
        while (performance.now() < start + seconds * 1000) {
          const began = performance.now();
          await cycle();
          latencies_us.push(Math.round((performance.now() - began) * 1000));
        }
      };
  await Promise.all(Array.from({ length: in_flight }, (_, index) => client(index)));
  const elapsed = (performance.now() - start) / 1000;
  return { seconds: elapsed, operations: latencies_us.length, latencies_us, redis_calls: await calls() };
}

// All commands that Redis has run, those within scripts too.
async function calls() {
  const text = await statistics.info('commandstats');
  return [...text.matchAll(/calls=(\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0);
}

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const plan = JSON.parse(line);
  console.log(JSON.stringify(await (plan.filled ? fill(plan) : work(plan))));
}
await worker?.close();
await queue.close();
statistics.disconnect();
server.removeAllListeners('exit');
server.kill();
await once(server, 'exit');
