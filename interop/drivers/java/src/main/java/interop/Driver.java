package interop;

import static java.util.Map.entry;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.redisson.api.RedissonClient;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** Drives one Java library by the protocol of ../README.md. Its parameters: LIBRARY REDIS_URL. */
public final class Driver {
    private static final Map<String, Function<Server, Library>> LIBRARIES = Map.ofEntries(
            entry("redisson", server -> new RedissonLibrary(server, RedissonClient::getLock)),
            entry("redisson-fair", server -> new RedissonLibrary(server, RedissonClient::getFairLock)),
            entry("redisson-read", server -> new RedissonLibrary(server, (client, name) -> client.getReadWriteLock(name).readLock())),
            entry("redisson-write", server -> new RedissonLibrary(server, (client, name) -> client.getReadWriteLock(name).writeLock())),
            entry("spring-spin", server -> new SpringIntegrationLibrary(server, RedisLockType.SPIN_LOCK)),
            entry("spring-pubsub", server -> new SpringIntegrationLibrary(server, RedisLockType.PUB_SUB_LOCK)),
            entry("spring-template", SpringTemplateLibrary::new),
            entry("jedis", JedisLibrary::new),
            entry("shedlock", server -> new ShedLockLibrary(server, false)),
            entry("shedlock-safe", server -> new ShedLockLibrary(server, true)),
            entry("lock4j", Lock4jLibrary::new),
            entry("houbb", HoubbLibrary::new));

    private final Library library;
    private final Hammer hammer;
    private final Map<String, Holder> holders = new ConcurrentHashMap<>();
    private final AtomicLong handles = new AtomicLong();

    /** A held lock, and the thread that owns it. */
    private record Holder(ExecutorService thread, Lock lock) {}

    private Driver(Server server, Function<Server, Library> open) {
        library = open.apply(server);
        hammer = new Hammer(library, server.connect());
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(Server.parse(args[1]), LIBRARIES.get(args[0]));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = requests.readLine()) != null; ) {
            driver.accept(line.split(" "));
        }
        System.exit(0); // without waiting for the requests: nobody reads the replies any more
    }

    /** Serves a request on the thread that owns its lock, or on a new one. */
    private void accept(String[] words) {
        Holder holder = switch (words[1]) {
            case "extend" -> holders.get(words[2]);
            case "unlock" -> holders.remove(words[2]);
            default -> null;
        };
        ExecutorService thread = holder != null ? holder.thread : Executors.newSingleThreadExecutor();
        thread.execute(() -> {
            String reply;
            try {
                reply = serve(words, thread, holder);
            } catch (Exception | LinkageError e) {
                reply = "error " + describe(e);
            }
            // Once the reply is sent, the thread may get its next request.
            if (!owns(words[1], holder, reply)) {
                thread.shutdown();
            }
            synchronized (this) {
                System.out.println(words[0] + " " + reply);
            }
        });
    }

    /** Whether the thread owns a lock after a request. */
    private static boolean owns(String request, Holder holder, String reply) {
        return switch (request) {
            case "try", "lock" -> reply.startsWith("ok");
            case "extend" -> holder != null;
            default -> false;
        };
    }

    /** The text of an error and its causes, in one short line. */
    static String describe(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append("; caused by ").append(cause);
        }
        String line = text.toString().replaceAll("\\s+", " ");
        return line.substring(0, Math.min(line.length(), 1000));
    }

    private String serve(String[] words, ExecutorService thread, Holder holder) throws Exception {
        return switch (words[1]) {
            case "describe" -> "ok " + library.key(words[2]) + " " + version() + " Java " + System.getProperty("java.version");
            case "try" -> acquire(words[2], Long.parseLong(words[3]), 0, thread);
            case "lock" -> acquire(words[2], Long.parseLong(words[3]), Long.parseLong(words[4]), thread);
            case "extend" -> reply(holder.lock.extend(Long.parseLong(words[3])));
            case "unlock" -> reply(holder.lock.release());
            case "force" -> reply(library.force(words[2]));
            case "hammer" -> "ok " + hammer.run(words);
            default -> throw new IllegalArgumentException("unknown request " + words[1]);
        };
    }

    private String acquire(String name, long ttlMs, long waitMs, ExecutorService thread) throws Exception {
        Lock lock = library.lock(name, ttlMs);
        if (!lock.acquire(waitMs)) {
            return "busy";
        }
        String handle = Long.toString(handles.incrementAndGet());
        holders.put(handle, new Holder(thread, lock));
        return "ok " + handle + " " + lock.value();
    }

    private static String reply(Lock.Outcome outcome) {
        return outcome.name().toLowerCase();
    }

    /** The version in the name of the library's JAR file. */
    private String version() {
        String file = library.mainClass().getProtectionDomain().getCodeSource().getLocation().getPath();
        Matcher version = Pattern.compile("-([0-9][^/]*)\\.jar$").matcher(file);
        if (!version.find()) {
            throw new IllegalStateException("no version in " + file);
        }
        return version.group(1);
    }
}
