import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a share group, each a thread of its own with a share consumer of its own.
 *
 * <p>Usage: ShareLoad BOOTSTRAP TOPIC GROUP MEMBERS SECONDS consume|acknowledge. With `consume` members accept what they
 * get with the next poll, as fast as they can; with `acknowledge` each polls one record, accepts it, and waits for the
 * confirmation. The time begins, and a line "began" is printed, when every member has got a record, or half of them if
 * there are more than ten. At its end follows one line: records, seconds, confirmations, and the 50th and 99th
 * percentile of their latency in microseconds.
 */
public final class ShareLoad {
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(60);
    private static final long DRY_NS = TimeUnit.MILLISECONDS.toNanos(500);
    private static final int FEW = 10;

    private final Properties settings = new Properties();
    private final String topic;
    private final boolean waits;
    private final AtomicLong records = new AtomicLong();
    private final AtomicLong started = new AtomicLong();
    private final List<Long> latenciesNs = new ArrayList<>();
    private volatile long lastNs;
    private volatile boolean counts;
    private volatile boolean over;

    private ShareLoad(String bootstrap, String topic, String group, boolean waits) {
        this.topic = topic;
        this.waits = waits;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", waits ? "explicit" : "implicit");
        settings.put("share.acquire.mode", waits ? "record_limit" : "batch_optimized");
        settings.put("max.poll.records", waits ? "1" : "500");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
    }

    public static void main(String[] words) throws Exception {
        int members = Integer.parseInt(words[3]);
        readFromTheStart(words[0], words[2]);
        ShareLoad load = new ShareLoad(words[0], words[1], words[2], words[5].equals("acknowledge"));
        load.run(members, Double.parseDouble(words[4]));
        System.exit(0);
    }

    private static void readFromTheStart(String bootstrap, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(
                Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    private void run(int members, double seconds) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < members; i++) {
            Thread thread = new Thread(this::consume);
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        long patience = System.nanoTime() + PATIENCE_NS;
        long enough = members > FEW ? members / 2 : members;
        while (started.get() < enough) {
            if (System.nanoTime() > patience) {
                throw new IllegalStateException(started + " of " + members + " members got a record within 60 s");
            }
            Thread.sleep(1);
        }
        records.set(0);
        counts = true;
        System.out.println("began");
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        counts = false;
        long ended = System.nanoTime();
        if (ended - lastNs > DRY_NS) {
            throw new IllegalStateException("no member got a record lately: the topic needs more of them");
        }
        double took = (ended - began) / 1e9;
        long count = records.get();
        long[] sorted;
        synchronized (latenciesNs) {
            sorted = latenciesNs.stream().mapToLong(Long::longValue).sorted().toArray();
        }
        System.out.printf("%d %.3f %d %d %d%n", count, took, sorted.length, at(sorted, 0.5), at(sorted, 0.99));
        over = true;
        for (Thread thread : threads) {
            thread.join(5_000);
        }
    }

    private static long at(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (share * sorted.length))] / 1_000;
    }

    private void consume() {
        boolean isNew = true;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (!over) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(500));
                if (polled.isEmpty()) {
                    continue;
                }
                lastNs = System.nanoTime();
                if (isNew) {
                    isNew = false;
                    started.incrementAndGet();
                }
                if (waits) {
                    acknowledge(consumer, polled);
                }
                if (counts) {
                    records.addAndGet(polled.count());
                }
            }
        } catch (RuntimeException error) {
            System.err.println(error);
        }
    }

    private void acknowledge(KafkaShareConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> polled) {
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
        }
        long asked = System.nanoTime();
        consumer.commitSync(Duration.ofSeconds(30)).values().forEach(error -> error.ifPresent(each -> {
            throw each;
        }));
        if (counts) {
            synchronized (latenciesNs) {
                latenciesNs.add(System.nanoTime() - asked);
            }
        }
    }
}
