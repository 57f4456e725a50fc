package barnabas.cluster;

import org.opentest4j.TestAbortedException;

/** A test wanted of Kafka's own objects or settings what this cluster has no answer to: it is skipped, not failed. */
public final class Unanswered extends TestAbortedException {
    private static volatile String first;

    private Unanswered(String reason) {
        super(reason);
    }

    static Unanswered because(String reason) {
        if (first == null) first = reason;
        return new Unanswered(reason);
    }

    static void forget() {
        first = null;
    }

    static boolean happened() {
        return first != null;
    }

    /** The test may have failed for want of an answer, also where it wrapped or swallowed this exception. */
    static Throwable judge(Throwable failure) {
        if (first == null || failure instanceof Unanswered) return failure;
        Unanswered judged = new Unanswered(first);
        judged.addSuppressed(failure);
        return judged;
    }
}
