/**
 * graphile-worker with its batch settings: a local queue of `--size` jobs, and jobs completed together.
 *
 * Less than a move here: the job's row is deleted when it ends and nothing is kept of it. A job whose worker died is
 * locked for four hours. It has no states to go through.
 *
 * Run and answered as script.py says, with the path of its packages in PEER_HOME.
 */
import { fork } from "node:child_process";
import { createRequire } from "node:module";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const require = createRequire(`${process.env.PEER_HOME}/package.json`);
const { Pool } = require("pg");
const { run, runMigrations } = require("graphile-worker");

const PATIENCE = 60_000;
const TICK = 20;
const silent = new (require("graphile-worker").Logger)(() => () => {});
const [url, jobs] = [process.argv[2], Number(process.argv[3])];
const option = (name, value) => {
  const place = process.argv.indexOf(name);
  return place < 0 ? value : Number(process.argv[place + 1]);
};
const size = option("--size", 500);
const tell = (values) => console.log(JSON.stringify(values));
const seconds = () => performance.timeOrigin / 1000 + performance.now() / 1000;
const cpu = () => (process.cpuUsage().user + process.cpuUsage().system) / 1e6;

async function enqueue(pool) {
  for (let start = 0; start < jobs; start += 1000) {
    const specs = Array.from({ length: Math.min(1000, jobs - start) }, () => ({ identifier: "nothing" }));
    await pool.query(
      `SELECT 1 FROM graphile_worker.add_jobs(ARRAY(
         SELECT json_populate_recordset(NULL::graphile_worker.job_spec, $1::json)))`,
      [JSON.stringify(specs)],
    );
  }
}

async function enqueueEach(pool) {
  for (let number = 0; number < jobs; number += 1) {
    await pool.query("SELECT id FROM graphile_worker.add_job($1, $2::json)", ["nothing", "{}"]);
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Offer jobs without end, as offer.py does. */
async function offer(pool, rate) {
  const began = Date.now();
  let [sent, ticks, enqueued, second] = [0, 0, 0, Math.floor(began / 1000)];
  for (;;) {
    const due = began + ticks * TICK;
    await sleep(Math.max(0, due - Date.now()));
    ticks += 1;
    const count = Math.floor((rate * ticks * TICK) / 1000) - sent;
    if (count) {
      const specs = Array.from({ length: count }, () => ({ identifier: "timed", payload: { due: due / 1000 } }));
      await pool.query(
        `SELECT 1 FROM graphile_worker.add_jobs(ARRAY(
           SELECT json_populate_recordset(NULL::graphile_worker.job_spec, $1::json)))`,
        [JSON.stringify(specs)],
      );
    }
    sent += count;
    enqueued += count;
    const now = Math.floor(Date.now() / 1000);
    if (now > second) {
      tell({ second, enqueued });
      [second, enqueued] = [now, 0];
    }
  }
}

/** Run what is offered, each for some milliseconds, with `--size` at once. */
async function serve(milliseconds) {
  let begun = [];
  const report = async () => {
    for (;;) {
      const second = Math.floor(Date.now() / 1000);
      await sleep((second + 1) * 1000 - Date.now());
      tell({ second, claim_ms: begun.splice(0) });
    }
  };
  await run({
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: size,
        maxPoolSize: 26,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger: silent,
      },
    },
    noHandleSignals: true,
    taskList: {
      timed: async ({ due }) => {
        begun.push(Math.round(100 * (performance.timeOrigin + performance.now() - 1000 * due)) / 100);
        await sleep(milliseconds);
      },
    },
  });
  await report();
}

/** One worker: tells when it begins, what it has handled every 5 ms, and its processor seconds when asked to stop. */
async function work() {
  let handled = 0;
  const spent = cpu();
  process.send({ began: seconds() });
  const runner = await run({
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: 24,
        maxPoolSize: 26,
        localQueue: { size },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger: silent,
      },
    },
    noHandleSignals: true,
    taskList: {
      nothing: async () => {
        handled += 1;
      },
    },
  });
  const timer = setInterval(() => process.send({ handled }), 5);
  await once(process, "message");
  clearInterval(timer);
  await runner.stop();
  process.send({ handled, cpu: cpu() - spent });
  process.disconnect();
}

async function drain(pool, processes) {
  const workers = Array.from({ length: processes }, () => {
    const child = fork(fileURLToPath(import.meta.url), process.argv.slice(2), { env: { ...process.env, PEER_WORK: "1" } });
    const known = { child, handled: 0, ended: once(child, "exit") };
    child.on("message", (told) => Object.assign(known, told));
    return known;
  });
  const sum = (name) => workers.reduce((total, worker) => total + (worker[name] ?? 0), 0);
  let [best, deadline] = [-1, seconds() + PATIENCE / 1000];
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 3));
    if (sum("handled") > best) [best, deadline] = [sum("handled"), seconds() + PATIENCE / 1000];
    if (seconds() > deadline || workers.some((worker) => worker.child.exitCode !== null)) {
      workers.forEach((worker) => worker.child.kill());
      throw new Error(`the workers stopped at ${best} of ${jobs}`);
    }
    if (best < jobs) continue;
    const { rows } = await pool.query("SELECT count(*)::int AS count FROM graphile_worker.jobs");
    if (rows[0].count === 0) break;
  }
  const ended = seconds();
  workers.forEach((worker) => worker.child.send("stop"));
  await Promise.all(workers.map((worker) => worker.ended));
  if (sum("handled") !== jobs) throw new Error(`${sum("handled")} runs of ${jobs} jobs`);
  const began = Math.min(...workers.map((worker) => worker.began));
  return { seconds: ended - began, cpu: sum("cpu") };
}

async function main() {
  await runMigrations({ connectionString: url, logger: silent });
  const pool = new Pool({ connectionString: url });
  if (process.argv.includes("--install")) return pool.end();
  if (process.argv.includes("--offer")) return offer(pool, option("--offer"));
  if (process.argv.includes("--serve")) return serve(option("--serve"));
  const started = seconds();
  await (process.argv.includes("--each") ? enqueueEach : enqueue)(pool);
  tell({ enqueued: jobs, seconds: seconds() - started });
  await once(process.stdin, "data");
  process.stdin.pause();
  const spent = await drain(pool, option("--processes", 1));
  tell({ jobs, seconds: spent.seconds, jobs_per_second: jobs / spent.seconds, cpu: spent.cpu });
  await pool.end();
}

await (process.env.PEER_WORK ? work() : main());
