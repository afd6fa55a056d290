package interop;

import com.github.houbb.id.core.util.IdThreadLocalHelper;
import com.github.houbb.lock.core.bs.LockBs;
import com.github.houbb.redis.config.core.jedis.PooledJedisService;
import com.github.houbb.redis.config.core.service.JedisRedisService;
import java.util.concurrent.TimeUnit;

/**
 * lock-core of houbb. The lock key is DISTRIBUTED_LOCK: and the name. It never returns a
 * connection to its pool, so each command after the first 512 fails.
 */
final class HoubbLibrary implements Library {
    private final LockBs locks;

    HoubbLibrary(Server server) {
        PooledJedisService pool = new PooledJedisService(server.single().getHost(), server.single().getPort());
        pool.setTimeout(500); // not 10 s, so that the failures take less time
        locks = LockBs.newInstance().cache(new JedisRedisService(pool));
    }

    @Override
    public String key(String name) {
        return "DISTRIBUTED_LOCK:" + name;
    }

    @Override
    public Class<?> mainClass() {
        return LockBs.class;
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        return new Lock() {
            @Override
            public boolean acquire(long waitMs) {
                return locks.tryLock(name, TimeUnit.MILLISECONDS, ttlMs, waitMs, false);
            }

            @Override
            public String value() {
                return IdThreadLocalHelper.get();
            }

            @Override
            public Outcome extend(long extensionMs) {
                return Outcome.UNSUPPORTED;
            }

            @Override
            public Outcome release() {
                return Lock.held(locks.unlock(name));
            }
        };
    }
}
