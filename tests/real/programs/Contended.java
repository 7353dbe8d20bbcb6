/*
 * Contended [BLOCKED [IDLE [PARKED]]] - one thread holds a monitor and a java.util.concurrent lock
 * and sleeps, BLOCKED threads want the one, PARKED threads the other, IDLE threads of a pool have
 * nothing to do. Says so as JSON; "release" on stdin lets the holder go, and the number of those
 * that got what they want is the answer.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;

public class Contended {
    private static final Object monitor = new Object();
    private static final ReentrantLock lock = new ReentrantLock();
    private static final CountDownLatch held = new CountDownLatch(1);
    private static final CountDownLatch released = new CountDownLatch(1);
    private static final AtomicInteger got = new AtomicInteger();

    private static void hold() {
        synchronized (monitor) {
            lock.lock();
            held.countDown();
            try {
                while (!released.await(1, TimeUnit.SECONDS)) {
                    Thread.sleep(1);
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            } finally {
                lock.unlock();
            }
        }
    }

    private static void want() {
        synchronized (monitor) {
            got.incrementAndGet();
        }
    }

    private static void wantLock() {
        lock.lock();
        got.incrementAndGet();
        lock.unlock();
    }

    private static Thread begin(String name, Runnable run) {
        Thread thread = new Thread(run, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void fill(ExecutorService pool, int threads) throws Exception {
        CountDownLatch all = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            pool.submit(() -> {
                all.countDown();
                all.await();
                return null;
            });
        }
        all.await();
    }

    public static void main(String[] args) throws Exception {
        int blocked = args.length > 0 ? Integer.parseInt(args[0]) : 6;
        int idle = args.length > 1 ? Integer.parseInt(args[1]) : 4;
        int parked = args.length > 2 ? Integer.parseInt(args[2]) : 0;
        AtomicInteger names = new AtomicInteger();
        ExecutorService pool = Executors.newFixedThreadPool(Math.max(idle, 1), run -> {
            Thread thread = new Thread(run, "idle-" + names.getAndIncrement());
            thread.setDaemon(true);
            return thread;
        });
        List<Thread> threads = new ArrayList<>();

        fill(pool, idle);
        begin("holder", Contended::hold);
        held.await();
        for (int i = 0; i < blocked; i++) {
            threads.add(begin("blocked-" + i, Contended::want));
        }
        for (int i = 0; i < parked; i++) {
            threads.add(begin("parked-" + i, Contended::wantLock));
        }
        for (Thread thread : threads) {
            while (thread.getState() != Thread.State.BLOCKED
                    && thread.getState() != Thread.State.WAITING) {
                Thread.sleep(1);
            }
        }
        System.out.println("{\"blocked\":" + blocked + ",\"idle\":" + idle
                + ",\"parked\":" + parked + "}");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        if ("release".equals(in.readLine())) {
            released.countDown();
            for (Thread thread : threads) {
                thread.join();
            }
            System.out.println("{\"got\":" + got.get() + "}");
            in.readLine();
        }
        System.exit(0);
    }
}
