"""Drives one Python library by the protocol of ../README.md.

Usage: driver.py LIBRARY REDIS_URL
"""

import importlib.metadata
import itertools
import os
import platform
import random
import sys
import threading
import time

import pottery
import redis
import redis_lock


class RedisPy:
    """Lock of redis-py. The lock key is the name."""

    package = "redis"
    prefix = ""

    def __init__(self, client, name, ttl_ms):
        # By default the token is in thread-local storage. Here another thread may release it.
        self.lock = client.lock(name, timeout=ttl_ms / 1000, thread_local=False)

    def acquire(self, wait_ms):
        return self.lock.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000)

    def value(self):
        return self.lock.local.token.decode()

    def extend(self, ttl_ms):
        try:
            return self.lock.extend(ttl_ms / 1000, replace_ttl=True)
        except redis.exceptions.LockNotOwnedError:
            return False

    def release(self):
        try:
            self.lock.release()
        except redis.exceptions.LockNotOwnedError:
            return False
        return True


class PythonRedisLock:
    """Lock of python-redis-lock. It counts in whole seconds."""

    package = "python-redis-lock"
    prefix = "lock:"

    def __init__(self, client, name, ttl_ms):
        self.lock = redis_lock.Lock(client, name, expire=ttl_ms // 1000)

    def acquire(self, wait_ms):
        if wait_ms == 0:
            return self.lock.acquire(blocking=False)
        # It waits for a message that only its own release sends, and tries again at the end
        # of a timeout. So one long timeout would miss a release by dibs.
        end = time.monotonic() + wait_ms / 1000
        while time.monotonic() < end:
            if self.lock.acquire(timeout=1):
                return True
        return False

    def value(self):
        return self.lock.id

    def extend(self, ttl_ms):
        try:
            self.lock.extend(expire=ttl_ms // 1000)
        except redis_lock.NotAcquired:
            return False
        return True

    def release(self):
        try:
            self.lock.release()
        except redis_lock.NotAcquired:
            return False
        return True


    @staticmethod
    def force(client, name):
        held = client.exists("lock:" + name)
        redis_lock.Lock(client, name).reset()  # does not report whether it was held
        return held


class Pottery:
    """Redlock of pottery, on one server."""

    package = "pottery"
    prefix = "redlock:"

    def __init__(self, client, name, ttl_ms):
        self.lock = pottery.Redlock(
            key=name, masters={client}, auto_release_time=ttl_ms / 1000, raise_on_redis_errors=True
        )

    def acquire(self, wait_ms):
        if wait_ms == 0:
            return self.lock.acquire(blocking=False)
        return self.lock.acquire(timeout=wait_ms / 1000)

    def value(self):
        return self.lock._uuid  # it has no public method

    def extend(self, ttl_ms):
        self.lock.auto_release_time = ttl_ms / 1000
        try:
            self.lock.extend()
        except pottery.ExtendUnlockedLock:
            return False
        return True

    def release(self):
        try:
            self.lock.release()
        except pottery.ReleaseUnlockedLock:
            return False
        return True


LIBRARIES = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock, "pottery": Pottery}


class Driver:
    def __init__(self, library, url):
        self.library = library
        self.client = redis.Redis.from_url(url)
        self.handles = itertools.count(1)
        self.locks = {}
        self.requests = {
            "describe": self.describe,
            "try": lambda name, ttl: self.acquire(name, int(ttl), 0),
            "lock": lambda name, ttl, wait: self.acquire(name, int(ttl), int(wait)),
            "extend": lambda handle, ttl: outcome(self.locks[handle].extend(int(ttl))),
            "unlock": lambda handle: outcome(self.locks.pop(handle).release()),
            "force": self.force,
            "hammer": lambda name, counter, *numbers: self.hammer(name, counter, *map(int, numbers)),
        }

    def describe(self, name):
        version = importlib.metadata.version(self.library.package)
        return f"ok {self.library.prefix}{name} {version} Python {platform.python_version()}"

    def acquire(self, name, ttl_ms, wait_ms):
        lock = self.library(self.client, name, ttl_ms)
        if not lock.acquire(wait_ms):
            return "busy"
        handle = str(next(self.handles))
        self.locks[handle] = lock
        return f"ok {handle} {lock.value()}"

    def force(self, name):
        if not hasattr(self.library, "force"):
            return "unsupported"
        return outcome(self.library.force(self.client, name))

    def hammer(self, name, counter, threads, seconds, ttl_ms, work_ms, pause_ms):
        end = time.monotonic() + seconds
        workers = [Worker(self, name, counter, end, ttl_ms, work_ms, pause_ms) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for worker in workers:
            if worker.error:
                raise worker.error
        turns = [worker.turns for worker in workers]
        overlaps = sum(worker.overlaps for worker in workers)
        longest_ms = max(worker.longest_ms for worker in workers)
        failures = [failure for worker in workers for failure in worker.failures]
        return f"ok {sum(turns)} {min(turns)} {overlaps} {longest_ms:.0f} {len(failures)} {failures[-1] if failures else ''}".strip()

    def answer(self, line, output):
        number, request, *arguments = line.split()
        try:
            reply = self.requests[request](*arguments)
        except Exception as error:
            reply = "error " + describe(error)
        with output:
            print(number, reply, flush=True)


class Worker(threading.Thread):
    """Increments a counter that only the lock protects."""

    def __init__(self, driver, name, counter, end, ttl_ms, work_ms, pause_ms):
        super().__init__()
        self.driver, self.name_to_lock, self.counter = driver, name, counter
        self.end, self.ttl_ms, self.work_ms, self.pause_ms = end, ttl_ms, work_ms, pause_ms
        self.turns = self.overlaps = self.longest_ms = 0
        self.failures = []
        self.error = None

    def run(self):
        try:
            while time.monotonic() < self.end:
                lock = self.driver.library(self.driver.client, self.name_to_lock, self.ttl_ms)
                if self.acquire(lock):
                    self.turn()
                    self.release(lock)
                    time.sleep(random.uniform(0, 2 * self.pause_ms / 1000))
        except Exception as error:
            self.error = error

    def acquire(self, lock):
        begin = time.monotonic()
        try:
            return lock.acquire(int(1000 * (self.end - begin)) + 1)
        except Exception as error:
            self.failures.append(describe(error))
            time.sleep(self.work_ms / 1000)
            return False
        finally:
            self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - begin))

    def turn(self):
        redis, counter = self.driver.client, self.counter
        if redis.incr(counter + ":inside") != 1:
            self.overlaps += 1
        count = int(redis.get(counter) or 0)
        time.sleep(self.work_ms / 1000)
        redis.set(counter, count + 1)
        redis.decr(counter + ":inside")
        self.turns += 1

    def release(self, lock):
        try:
            if not lock.release():
                self.failures.append("the lock was lost during the work")
        except Exception as error:
            self.failures.append(describe(error))


def describe(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:1000]


def outcome(held):
    return "ok" if held else "lost"


def main():
    name, url = sys.argv[1:]
    driver = Driver(LIBRARIES[name], url)
    output = threading.Lock()
    for line in sys.stdin:
        threading.Thread(target=driver.answer, args=(line, output)).start()
    os._exit(0)  # without waiting for the requests: nobody reads the replies any more


main()
