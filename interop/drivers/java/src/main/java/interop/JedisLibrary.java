package interop;

import java.util.List;
import java.util.UUID;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;

/** The lock of many articles about Jedis: SET NX PX with a request ID, some tries, and a script that deletes its own value. */
final class JedisLibrary implements Library {
    private static final String UNLOCK =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

    private final JedisPool pool;

    JedisLibrary(Server server) {
        pool = new JedisPool(server.single());
    }

    @Override
    public String key(String name) {
        return name;
    }

    @Override
    public Class<?> mainClass() {
        return Jedis.class;
    }

    @Override
    public Lock lock(String name, long ttlMs) {
        String requestId = UUID.randomUUID().toString();
        return new Lock() {
            @Override
            public boolean acquire(long waitMs) throws Exception {
                return Lock.poll(waitMs, this::tryOnce);
            }

            private boolean tryOnce() {
                try (Jedis jedis = pool.getResource()) {
                    return "OK".equals(jedis.set(name, requestId, "NX", "PX", ttlMs));
                }
            }

            @Override
            public String value() {
                return requestId;
            }

            @Override
            public Outcome extend(long extensionMs) {
                return Outcome.UNSUPPORTED;
            }

            @Override
            public Outcome release() {
                try (Jedis jedis = pool.getResource()) {
                    return Lock.held(jedis.eval(UNLOCK, List.of(name), List.of(requestId)).equals(1L));
                }
            }
        };
    }
}
