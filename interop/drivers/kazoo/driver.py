"""Runs workers that lock a path with kazoo. See ../README.md, "ZooKeeper"."""

import importlib.metadata
import os
import platform
import random
import socket
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient

recipe, servers, path, session_ms, judge, side, id_, mode, work_ms, workers = sys.argv[1:]
stopped = threading.Event()


def turn(client):
    shared = random.random() < 0.5 if mode == "any" else mode == "shared"
    if recipe == "Lock":
        lock, shared = client.Lock(path, id_), False
    elif shared:
        lock = client.ReadLock(path, id_)
    else:
        lock = client.WriteLock(path, id_)
    with lock:
        visit(shared)


def visit(shared):
    """Tells the test that this worker is inside, works, and tells it that the worker leaves."""
    host, port = judge.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as conn, conn.makefile("rw") as lines:
        say(lines, f"{side} {id_} {'shared' if shared else 'exclusive'}")
        time.sleep(int(work_ms) / 1000)
        say(lines, "leave")


def say(lines, line):
    lines.write(line + "\n")
    lines.flush()
    reply = lines.readline()
    if reply != "ok\n":
        raise OSError(f"the test answers {reply!r}")


def work(client):
    try:
        turn(client)
        while not stopped.is_set():
            turn(client)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def main():
    print(importlib.metadata.version("kazoo"), "Python", platform.python_version(), flush=True)
    client = KazooClient(hosts=servers, timeout=int(session_ms) / 1000)
    client.start()
    threads = [threading.Thread(target=work, args=(client,)) for _ in range(int(workers))]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()
    client.stop()


main()
