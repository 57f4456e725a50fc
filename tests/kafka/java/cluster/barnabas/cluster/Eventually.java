package barnabas.cluster;

/** Waits for what happens in other processes. */
final class Eventually {
    private static final long POLL_MS = 20;

    interface Condition {
        boolean holds() throws Exception;
    }

    private Eventually() { }

    /** A condition that throws does not hold yet. */
    static void is(long patienceMs, String what, Condition condition) {
        long end = System.nanoTime() + patienceMs * 1_000_000;
        Exception last = null;
        while (true) {
            try {
                if (condition.holds()) return;
                last = null;
            } catch (Exception e) {
                last = e;
            }
            if (System.nanoTime() > end) throw new AssertionError("Not within " + patienceMs + " ms: " + what, last);
            pause(POLL_MS);
        }
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError("interrupted", e);
        }
    }
}
