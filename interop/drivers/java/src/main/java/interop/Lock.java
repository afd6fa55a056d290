package interop;

/** A lock on a name. All calls are on one thread: many libraries know the owner by its thread. */
interface Lock {
    /** What a library reports about the lock that it was asked to change. */
    enum Outcome { OK, LOST, UNREPORTED, UNSUPPORTED }

    /** Acquires the lock, or waits for it if waitMs is positive. */
    boolean acquire(long waitMs) throws Exception;

    /** The value of the lock key, or the field if it is a hash. */
    String value();

    Outcome extend(long ttlMs) throws Exception;

    Outcome release() throws Exception;

    static Outcome held(boolean yes) {
        return yes ? Outcome.OK : Outcome.LOST;
    }
}
