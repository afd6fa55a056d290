import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Runs workers that lock a path with Curator. See ../README.md, "ZooKeeper". */
public final class Curator {
    private final String recipe, path, judge, side, id, mode;
    private final long work;
    private final CuratorFramework client;
    private volatile boolean stopped;

    private Curator(String[] args) {
        recipe = args[0];
        path = args[2];
        judge = args[4];
        side = args[5];
        id = args[6];
        mode = args[7];
        work = Long.parseLong(args[8]);
        client = CuratorFrameworkFactory.builder()
            .connectString(args[1])
            .sessionTimeoutMs(Integer.parseInt(args[3]))
            .connectionTimeoutMs(10_000)
            .retryPolicy(new ExponentialBackoffRetry(100, 10))
            .build();
        client.start();
    }

    public static void main(String[] args) throws Exception {
        String jar = InterProcessMutex.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        System.out.println(jar.replaceAll(".*/curator-recipes-(.*)\\.jar", "$1") + " Java " + Runtime.version().feature());
        Curator driver = new Curator(args);
        int workers = Integer.parseInt(args[9]);
        Thread[] threads = new Thread[workers];
        for (int i = 0; i < workers; i++) {
            threads[i] = new Thread(driver::work);
            threads[i].start();
        }
        while (System.in.read() >= 0) { }
        driver.stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        driver.client.close();
    }

    private void work() {
        try {
            do {
                turn();
            } while (!stopped);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private void turn() throws Exception {
        boolean shared = mode.equals("any") ? ThreadLocalRandom.current().nextBoolean() : mode.equals("shared");
        switch (recipe) {
            case "InterProcessMutex" -> turn(new InterProcessMutex(client, path), false);
            case "InterProcessReadWriteLock" -> {
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, path);
                turn(shared ? lock.readLock() : lock.writeLock(), shared);
            }
            case "InterProcessSemaphoreV2" -> {
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 1);
                Lease lease = semaphore.acquire();
                visit(false);
                semaphore.returnLease(lease);
            }
            default -> throw new IllegalArgumentException(recipe);
        }
    }

    private void turn(InterProcessMutex lock, boolean shared) throws Exception {
        if (!lock.acquire(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the lock was busy for 60 s");
        }
        try {
            visit(shared);
        } finally {
            lock.release();
        }
    }

    /** Tells the test that this worker is inside, works, and tells it that the worker leaves. */
    private void visit(boolean shared) throws IOException, InterruptedException {
        int colon = judge.lastIndexOf(':');
        try (Socket socket = new Socket(judge.substring(0, colon), Integer.parseInt(judge.substring(colon + 1)))) {
            BufferedReader replies = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            say(socket, replies, side + " " + id + " " + (shared ? "shared" : "exclusive"));
            Thread.sleep(work);
            say(socket, replies, "leave");
        }
    }

    private static void say(Socket socket, BufferedReader replies, String line) throws IOException {
        socket.getOutputStream().write((line + "\n").getBytes());
        String reply = replies.readLine();
        if (!"ok".equals(reply)) {
            throw new IOException("the test answers " + reply);
        }
    }
}
