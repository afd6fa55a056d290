package interop;

import com.baomidou.lock.LockInfo;
import com.baomidou.lock.LockTemplate;
import com.baomidou.lock.executor.RedisTemplateLockExecutor;
import com.baomidou.lock.spring.boot.autoconfigure.Lock4jProperties;
import java.util.List;
import org.springframework.data.redis.core.StringRedisTemplate;

/** The template of lock4j, on Spring Data Redis. The lock key is the name. Its annotation adds a prefix. */
final class Lock4jLibrary implements Library {
    private final LockTemplate template = new LockTemplate();

    Lock4jLibrary(Server server) {
        Lock4jProperties properties = new Lock4jProperties();
        template.setProperties(properties);
        template.setExecutors(List.of(new RedisTemplateLockExecutor(new StringRedisTemplate(server.spring()), properties)));
        try {
            template.afterPropertiesSet();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public String key(String name) {
        return name;
    }

    @Override
    public Class<?> mainClass() {
        return LockTemplate.class;
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        return new Lock() {
            private LockInfo lock;

            @Override
            public boolean acquire(long waitMs) {
                lock = template.lock(name, ttlMs, waitMs);
                return lock != null;
            }

            @Override
            public String value() {
                return lock.getLockValue();
            }

            @Override
            public Outcome extend(long extensionMs) {
                return Outcome.UNSUPPORTED;
            }

            @Override
            public Outcome release() {
                return Lock.held(template.releaseLock(lock));
            }
        };
    }
}
