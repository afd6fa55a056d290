package interop;

import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A kind of RLock of Redisson. The lock key is the name, and a hash. Setting: watchdog, the milliseconds
 * that a renewed lock survives a crash.
 */
final class RedissonLibrary implements Library {
    private final RedissonClient client;
    private final BiFunction<RedissonClient, String, RLock> kind;

    RedissonLibrary(Server server, BiFunction<RedissonClient, String, RLock> kind) {
        this.kind = kind;
        Config config = new Config();
        config.setLockWatchdogTimeout(server.setting("watchdog", config.getLockWatchdogTimeout()));
        switch (server.scheme()) {
            case "redis" -> config.useSingleServer().setAddress(server.urls().get(0));
            case "cluster" -> config.useClusterServers().setNodeAddresses(server.urls());
            case "sentinel" -> config.useSentinelServers()
                    .setMasterName(server.master())
                    .setCheckSentinelsList(false) // a test may have one sentinel only
                    .setSentinelAddresses(server.urls());
            default -> throw new IllegalArgumentException("unknown scheme " + server.scheme());
        }
        client = Redisson.create(config);
    }

    @Override
    public String key(String name) {
        return name;
    }

    @Override
    public Class<?> mainClass() {
        return Redisson.class;
    }

    @Override
    public Lock.Outcome force(String name) {
        return Lock.held(kind.apply(client, name).forceUnlock());
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        RLock lock = kind.apply(client, name);
        long leaseMs = ttlMs == 0 ? -1 : ttlMs; // -1: the watch dog renews it
        return new Lock() {
            @Override
            public boolean acquire(long waitMs) throws InterruptedException {
                return lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
            }

            @Override
            public String value() {
                return client.getId() + ":" + Thread.currentThread().getId();
            }

            @Override
            public Outcome extend(long extensionMs) {
                return Outcome.UNSUPPORTED;
            }

            @Override
            public Outcome release() {
                try {
                    lock.unlock();
                } catch (IllegalMonitorStateException notTheOwner) {
                    return Outcome.LOST;
                }
                return Outcome.OK;
            }
        };
    }
}
