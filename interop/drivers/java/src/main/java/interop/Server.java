package interop;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import java.net.URI;
import java.util.Arrays;
import java.util.List;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * The Redis of the tests:
 *
 * <pre>
 * redis://HOST:PORT
 * cluster://HOST:PORT,HOST:PORT
 * sentinel://MASTER@HOST:PORT,HOST:PORT
 * </pre>
 *
 * A query such as ?watchdog=1500 has the settings of a library.
 */
record Server(String scheme, String master, List<String> addresses, String query) {
    static Server parse(String url) {
        String[] schemeAndRest = url.split("://", 2);
        String[] restAndQuery = schemeAndRest[1].split("\\?", 2);
        String[] masterAndAddresses = restAndQuery[0].replaceAll("/.*", "").split("@", 2);
        String master = masterAndAddresses.length == 2 ? masterAndAddresses[0] : "";
        String addresses = masterAndAddresses[masterAndAddresses.length - 1];
        String query = restAndQuery.length == 2 ? restAndQuery[1] : "";
        return new Server(schemeAndRest[0], master, Arrays.asList(addresses.split(",")), query);
    }

    /** A number of the query, or a default. */
    long setting(String name, long otherwise) {
        return Arrays.stream(query.split("&"))
                .filter(setting -> setting.startsWith(name + "="))
                .map(setting -> Long.valueOf(setting.substring(name.length() + 1)))
                .findFirst()
                .orElse(otherwise);
    }

    List<String> urls() {
        return addresses.stream().map(address -> "redis://" + address).toList();
    }

    /** The host and port of a single server. */
    URI single() {
        if (!scheme.equals("redis")) {
            throw new IllegalArgumentException("the driver supports " + scheme + " only for Redisson");
        }
        return URI.create(urls().get(0));
    }

    /** The connections of a program with Spring. */
    RedisConnectionFactory spring() {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(single().getHost(), single().getPort());
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    /** A client for the driver's own commands. It is safe for concurrent use. */
    RedisClusterCommands<String, String> connect() {
        return switch (scheme) {
            case "redis" -> RedisClient.create(urls().get(0)).connect().sync();
            case "cluster" -> RedisClusterClient.create(urls().stream().map(RedisURI::create).toList()).connect().sync();
            case "sentinel" -> RedisClient.create("redis-sentinel://" + String.join(",", addresses) + "#" + master).connect().sync();
            default -> throw new IllegalArgumentException("unknown scheme " + scheme);
        };
    }
}
