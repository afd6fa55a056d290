package interop;

import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** Workers that increment a counter that nothing but the lock protects. */
final class Hammer {
    private final Library library;
    private final RedisClusterCommands<String, String> redis;

    Hammer(Library library, RedisClusterCommands<String, String> redis) {
        this.library = library;
        this.redis = redis;
    }

    /** Serves the request hammer, and returns the figures of its reply. */
    String run(String[] words) throws Exception {
        int threads = Integer.parseInt(words[4]);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(words[5]));
        List<Callable<Worker>> workers = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Worker worker = new Worker();
            worker.name = words[2];
            worker.counter = words[3];
            worker.end = end;
            worker.ttlMs = Long.parseLong(words[6]);
            worker.workMs = Long.parseLong(words[7]);
            worker.pauseMs = Long.parseLong(words[8]);
            workers.add(worker);
        }
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            return sum(pool.invokeAll(workers));
        } finally {
            pool.shutdown();
        }
    }

    private static String sum(List<Future<Worker>> workers) throws Exception {
        long turns = 0, least = Long.MAX_VALUE, overlaps = 0, longestMs = 0, failures = 0;
        String failure = "";
        for (Future<Worker> result : workers) {
            Worker worker = result.get();
            turns += worker.turns;
            least = Math.min(least, worker.turns);
            overlaps += worker.overlaps;
            longestMs = Math.max(longestMs, worker.longestMs);
            failures += worker.failures;
            failure = worker.failures > 0 ? worker.failure : failure;
        }
        return (turns + " " + least + " " + overlaps + " " + longestMs + " " + failures + " " + failure).trim();
    }

    private final class Worker implements Callable<Worker> {
        String name, counter;
        long end, ttlMs, workMs, pauseMs;

        long turns, overlaps, longestMs, failures;
        String failure; // the last one

        @Override
        public Worker call() throws Exception {
            while (remainingMs() > 0) {
                Lock lock = library.lock(name, ttlMs);
                if (acquire(lock)) {
                    turn();
                    release(lock);
                    Thread.sleep(ThreadLocalRandom.current().nextLong(2 * pauseMs + 1));
                }
            }
            return this;
        }

        private long remainingMs() {
            return TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
        }

        private boolean acquire(Lock lock) throws InterruptedException {
            long begin = System.nanoTime();
            try {
                return lock.acquire(remainingMs());
            } catch (Exception e) {
                fail(Driver.describe(e));
                Thread.sleep(Math.max(workMs, 1));
                return false;
            } finally {
                longestMs = Math.max(longestMs, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
            }
        }

        private void turn() throws InterruptedException {
            if (redis.incr(counter + ":inside") != 1) {
                overlaps++;
            }
            String count = redis.get(counter);
            Thread.sleep(workMs);
            redis.set(counter, Long.toString(count == null ? 1 : Long.parseLong(count) + 1));
            redis.decr(counter + ":inside");
            turns++;
        }

        private void release(Lock lock) {
            try {
                if (lock.release() == Lock.Outcome.LOST) {
                    fail("the lock was lost during the work");
                }
            } catch (Exception e) {
                fail(Driver.describe(e));
            }
        }

        private void fail(String text) {
            failures++;
            failure = text;
        }
    }
}
