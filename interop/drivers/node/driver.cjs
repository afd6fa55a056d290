// Drives one JavaScript library by the protocol of ../README.md.
//
// Usage: node driver.cjs LIBRARY REDIS_URL
"use strict";

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const { Redis } = require("ioredis");
const { Redisson } = require("node-redisson");
const { RedissonLockError } = require("node-redisson/dist/errors/RedissonLockError"); // not exported
const { Mutex } = require("redis-semaphore");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");

// node-redlock, on one server. The lock key is the name.
class NodeRedlock {
  static package = "redlock";
  static prefix = "";
  static retryMs = 50;

  constructor(client, name, ttlMs) {
    this.redlock = new Redlock([client]);
    this.name = name;
    this.ttlMs = ttlMs;
  }

  async acquire(waitMs) {
    const settings = { retryDelay: NodeRedlock.retryMs, retryJitter: NodeRedlock.retryMs / 2 };
    settings.retryCount = Math.floor(waitMs / settings.retryDelay);
    return reportRefusal(async () => {
      this.lock = await this.redlock.acquire([this.name], this.ttlMs, settings);
    });
  }

  value() {
    return this.lock.value;
  }

  // It retries also if the key has another value. That would not change.
  extend(ttlMs) {
    return reportRefusal(async () => {
      this.lock = await this.redlock.extend(this.lock, ttlMs, { retryCount: 0 });
    });
  }

  release() {
    return reportRefusal(() => this.redlock.release(this.lock, { retryCount: 0 }));
  }
}

// reportRefusal returns false if the server has refused a request of node-redlock because
// of another value of the key, or if the lock has expired by the clock of this process.
async function reportRefusal(request) {
  try {
    await request();
    return true;
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    for (const attempt of error.attempts) {
      for (const reason of (await attempt).votesAgainst.values()) {
        if (!(reason instanceof ResourceLockedError)) throw reason;
      }
    }
    return false;
  }
}

// The mutex of redis-semaphore.
class RedisSemaphore {
  static package = "redis-semaphore";
  static prefix = "mutex:";

  constructor(client, name, ttlMs) {
    this.client = client;
    this.name = name;
    this.ttlMs = ttlMs;
  }

  async acquire(waitMs) {
    this.mutex = new Mutex(this.client, this.name, {
      lockTimeout: this.ttlMs,
      refreshInterval: 0, // no renewal
      ...(waitMs === 0 ? { acquireAttemptsLimit: 1 } : { acquireTimeout: waitMs }),
    });
    return this.mutex.tryAcquire();
  }

  value() {
    return this.mutex.identifier;
  }

  // It extends a lock in the background, or by another mutex with the same identifier.
  extend(ttlMs) {
    const again = new Mutex(this.client, this.name, {
      identifier: this.mutex.identifier,
      acquiredExternally: true,
      lockTimeout: ttlMs,
      refreshInterval: 0,
    });
    return again.tryAcquire();
  }

  async release() {
    await this.mutex.release(); // does not report whether the lock was held
    return undefined;
  }
}

// The lock of node-redisson. The lock key is the name, and a hash.
class NodeRedisson {
  static package = "node-redisson";
  static prefix = "";

  // The milliseconds that a renewed lock survives a crash are a parameter of the URL.
  static connect(url) {
    const { hostname, port, searchParams } = new URL(url);
    return new Redisson({
      redis: { options: { host: hostname, port: Number(port) } },
      lockWatchdogTimeout: BigInt(searchParams.get("watchdog") ?? 30000),
    });
  }

  static force(redisson, name) {
    return redisson.getLock(name).forceUnlock();
  }

  constructor(redisson, name, ttlMs) {
    this.lock = redisson.getLock(name);
    this.leaseTime = ttlMs === 0 ? true : ttlMs; // true: it is renewed
  }

  // tryLock gives up when the TTL of the holder has passed, and often earlier.
  async acquire(waitMs) {
    const end = performance.now() + waitMs;
    do {
      const left = Math.max(Math.ceil(end - performance.now()), 0);
      if (await this.lock.tryLock(left, this.leaseTime)) return true;
    } while (performance.now() < end);
    return false;
  }

  value() {
    return this.lock.getClientName(this.lock.clientId);
  }

  async release() {
    try {
      await this.lock.unlock();
    } catch (error) {
      if (error instanceof RedissonLockError) return false;
      throw error;
    }
    return true;
  }
}

const libraries = { "node-redlock": NodeRedlock, "redis-semaphore": RedisSemaphore, "node-redisson": NodeRedisson };

class Driver {
  constructor(library, url) {
    this.library = library;
    this.client = new Redis(url, { maxRetriesPerRequest: 1 });
    this.connection = library.connect?.(url) ?? this.client;
    this.locks = new Map();
    this.handles = 0;
  }

  describe(name) {
    const path = join(__dirname, "node_modules", this.library.package, "package.json");
    const { version } = JSON.parse(readFileSync(path, "utf8")); // redlock does not export this file
    return `ok ${this.library.prefix}${name} ${version.replace(/^v/, "")} Node ${process.versions.node}`;
  }

  try(name, ttlMs) {
    return this.lock(name, ttlMs, 0);
  }

  async lock(name, ttlMs, waitMs) {
    const lock = new this.library(this.connection, name, Number(ttlMs));
    if (!(await lock.acquire(Number(waitMs)))) return "busy";
    const handle = String(++this.handles);
    this.locks.set(handle, lock);
    return `ok ${handle} ${lock.value()}`;
  }

  async extend(handle, ttlMs) {
    const lock = this.locks.get(handle);
    return lock.extend ? outcome(await lock.extend(Number(ttlMs))) : "unsupported";
  }

  async unlock(handle) {
    const lock = this.locks.get(handle);
    this.locks.delete(handle);
    return outcome(await lock.release());
  }

  async force(name) {
    if (!this.library.force) return "unsupported";
    return outcome(await this.library.force(this.connection, name));
  }

  async hammer(name, counter, ...numbers) {
    const [threads, seconds, ttlMs, workMs, pauseMs] = numbers.map(Number);
    const end = performance.now() + 1000 * seconds;
    const workers = Array.from({ length: threads }, () => this.work(name, counter, end, ttlMs, workMs, pauseMs));
    const results = await Promise.all(workers);
    const turns = results.map((result) => result.turns);
    const overlaps = total(results.map((result) => result.overlaps));
    const longestMs = Math.max(...results.map((result) => result.longestMs));
    const failures = results.flatMap((result) => result.failures);
    const figures = [total(turns), Math.min(...turns), overlaps, Math.round(longestMs), failures.length];
    return `ok ${figures.join(" ")} ${failures.at(-1) ?? ""}`.trim();
  }

  async work(name, counter, end, ttlMs, workMs, pauseMs) {
    const result = { turns: 0, overlaps: 0, longestMs: 0, failures: [] };
    while (performance.now() < end) {
      const begin = performance.now();
      const lock = new this.library(this.connection, name, ttlMs);
      let acquired = false;
      try {
        acquired = await lock.acquire(Math.ceil(end - begin));
      } catch (error) {
        result.failures.push(describe(error));
        await sleep(workMs);
      }
      result.longestMs = Math.max(result.longestMs, performance.now() - begin);
      if (!acquired) continue;
      if ((await this.client.incr(`${counter}:inside`)) !== 1) result.overlaps++;
      const count = Number(await this.client.get(counter));
      await sleep(workMs);
      await this.client.set(counter, count + 1);
      await this.client.decr(`${counter}:inside`);
      result.turns++;
      try {
        if ((await lock.release()) === false) throw new Error("the lock was lost during the work");
      } catch (error) {
        result.failures.push(describe(error));
      }
      await sleep(2 * pauseMs * Math.random());
    }
    return result;
  }
}

function total(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function describe(error) {
  return String(error).replace(/\s+/g, " ").slice(0, 1000);
}

const requests = ["describe", "try", "lock", "extend", "unlock", "force", "hammer"];

// outcome is the reply for a lock that was held, was not, or of which the library does not
// report it.
function outcome(held) {
  if (held === undefined) return "unreported";
  return held ? "ok" : "lost";
}

async function answer(driver, line) {
  const [number, request, ...parameters] = line.split(" ");
  let reply;
  try {
    if (!requests.includes(request)) throw new Error(`unknown request ${request}`);
    reply = await driver[request](...parameters);
  } catch (error) {
    reply = `error ${describe(error)}`;
  }
  process.stdout.write(`${number} ${reply}\n`);
}

const [name, url] = process.argv.slice(2);
const driver = new Driver(libraries[name], url);
const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => answer(driver, line));
lines.on("close", () => process.exit(0)); // nobody reads the replies any more
