package interop;

/** A library, connected to the server. */
interface Library {
    /** The lock key of a name. */
    String key(String name);

    /** A class of the library: its JAR file has the version. */
    Class<?> mainClass();

    /** A lock on a name, not acquired. A TTL of 0 means that the library renews the lock. */
    Lock lock(String name, long ttlMs);

    /** Releases a lock of any owner. */
    default Lock.Outcome force(String name) {
        return Lock.Outcome.UNSUPPORTED;
    }
}
