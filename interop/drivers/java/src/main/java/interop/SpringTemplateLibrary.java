package interop;

import java.time.Duration;
import java.util.List;
import java.util.UUID;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.core.script.RedisScript;

/** The lock of many articles about Spring Data Redis: setIfAbsent, and a script that deletes its own value. */
final class SpringTemplateLibrary implements Library {
    private static final RedisScript<Long> UNLOCK = new DefaultRedisScript<>(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
            Long.class);

    private final StringRedisTemplate redis;

    SpringTemplateLibrary(Server server) {
        redis = new StringRedisTemplate(server.spring());
    }

    @Override
    public String key(String name) {
        return name;
    }

    @Override
    public Class<?> mainClass() {
        return StringRedisTemplate.class;
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        String value = UUID.randomUUID().toString();
        return new Lock() {
            @Override
            public boolean acquire(long waitMs) throws Exception {
                return Lock.poll(waitMs, () -> redis.opsForValue().setIfAbsent(name, value, Duration.ofMillis(ttlMs)));
            }

            @Override
            public String value() {
                return value;
            }

            @Override
            public Outcome extend(long extensionMs) {
                return Outcome.UNSUPPORTED;
            }

            @Override
            public Outcome release() {
                return Lock.held(redis.execute(UNLOCK, List.of(name), value) == 1);
            }
        };
    }
}
