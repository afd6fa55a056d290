package interop;

import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;

/** A lock on a name. All calls are on one thread: many libraries know the owner by its thread. */
interface Lock {
    /** What a library reports about the lock that it was asked to change. */
    enum Outcome { OK, LOST, UNREPORTED, UNSUPPORTED }

    /** Until the next try of a library that has no wait. */
    long PAUSE_MS = 50;

    /** Acquires the lock, or waits for it if waitMs is positive. */
    boolean acquire(long waitMs) throws Exception;

    /** The value of the lock key, or the field if it is a hash. */
    String value();

    Outcome extend(long ttlMs) throws Exception;

    Outcome release() throws Exception;

    /** Repeats a try until it succeeds, or the wait is over. */
    static boolean poll(long waitMs, Callable<Boolean> attempt) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        while (!attempt.call()) {
            if (System.nanoTime() >= end) {
                return false;
            }
            Thread.sleep(PAUSE_MS);
        }
        return true;
    }

    static Outcome held(boolean yes) {
        return yes ? Outcome.OK : Outcome.LOST;
    }
}
