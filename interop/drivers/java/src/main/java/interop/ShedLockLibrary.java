package interop;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;

/**
 * ShedLock with Spring Data Redis. The lock key is job-lock:default: and the name. With
 * safeUpdate it compares the value before it changes or deletes the key. That is not the
 * default.
 */
final class ShedLockLibrary implements Library {
    private final StringRedisTemplate redis;
    private final LockProvider provider;

    ShedLockLibrary(Server server, boolean safeUpdate) {
        RedisConnectionFactory connections = server.spring();
        redis = new StringRedisTemplate(connections);
        provider = new RedisLockProvider.Builder(connections).safeUpdate(safeUpdate).build();
    }

    @Override
    public String key(String name) {
        return "job-lock:default:" + name;
    }

    @Override
    public Class<?> mainClass() {
        return RedisLockProvider.class;
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        return new Lock() {
            private Optional<SimpleLock> lock = Optional.empty();

            @Override
            public boolean acquire(long waitMs) throws Exception {
                return Lock.poll(waitMs, this::tryOnce);
            }

            private boolean tryOnce() {
                lock = provider.lock(new LockConfiguration(Instant.now(), name, Duration.ofMillis(ttlMs), Duration.ZERO));
                return lock.isPresent();
            }

            @Override
            public String value() {
                return redis.opsForValue().get(key(name)); // it has no public method
            }

            @Override
            public Outcome extend(long extensionMs) {
                Optional<SimpleLock> extended = lock.get().extend(Duration.ofMillis(extensionMs), Duration.ZERO);
                extended.ifPresent(longer -> lock = extended);
                return Lock.held(extended.isPresent());
            }

            @Override
            public Outcome release() {
                lock.get().unlock();
                return Outcome.UNREPORTED;
            }
        };
    }
}
