package interop;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;

/** RedisLockRegistry of Spring Integration. The lock key is the key of the registry, a colon and the name. */
final class SpringIntegrationLibrary implements Library {
    private static final String REGISTRY = "registry";
    /**
     * A waiter of the mode PUB_SUB_LOCK waits for a message that only its own release sends,
     * and tries again at the end of its wait. So one long wait would miss a release by dibs.
     */
    private static final long LONGEST_WAIT_MS = 1000;

    private final StringRedisTemplate redis;
    private final RedisLockRegistry registry;

    SpringIntegrationLibrary(Server server, RedisLockType type) {
        RedisConnectionFactory connections = server.spring();
        redis = new StringRedisTemplate(connections);
        registry = new RedisLockRegistry(connections, REGISTRY);
        registry.setRedisLockType(type);
    }

    @Override
    public String key(String name) {
        return REGISTRY + ":" + name;
    }

    @Override
    public Class<?> mainClass() {
        return RedisLockRegistry.class;
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        DistributedLock lock = registry.obtain(name);
        return new Lock() {
            @Override
            public boolean acquire(long waitMs) throws InterruptedException {
                boolean acquired = tryLock(Math.min(waitMs, LONGEST_WAIT_MS));
                for (long leftMs = waitMs - LONGEST_WAIT_MS; !acquired && leftMs > 0; leftMs -= LONGEST_WAIT_MS) {
                    acquired = tryLock(Math.min(leftMs, LONGEST_WAIT_MS));
                }
                return acquired;
            }

            /**
             * The library reads its map of locks without a mutex. While another thread adds a
             * name, it may not find this one: then it says to obtain the lock again.
             */
            private boolean tryLock(long waitMs) throws InterruptedException {
                try {
                    return lock.tryLock(Duration.ofMillis(waitMs), Duration.ofMillis(ttlMs));
                } catch (CannotAcquireLockException e) {
                    if (!(e.getCause() instanceof IllegalStateException)) {
                        throw e;
                    }
                    return registry.obtain(name).tryLock(Duration.ofMillis(waitMs), Duration.ofMillis(ttlMs));
                }
            }

            @Override
            public String value() {
                return redis.opsForValue().get(key(name)); // it has no public method
            }

            @Override
            public Outcome extend(long extensionMs) {
                try {
                    registry.renewLock(name, Duration.ofMillis(extensionMs));
                } catch (IllegalStateException lost) {
                    return Outcome.LOST;
                }
                return Outcome.OK;
            }

            @Override
            public Outcome release() {
                try {
                    lock.unlock();
                } catch (ConcurrentModificationException lost) {
                    return Outcome.LOST;
                }
                return Outcome.OK;
            }
        };
    }
}
