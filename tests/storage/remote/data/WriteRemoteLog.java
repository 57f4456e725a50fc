package org.apache.kafka.server.log.remote.metadata.storage;

import java.lang.reflect.Method;
import java.util.*;
import java.util.stream.*;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/**
 * Writes what Apache Kafka's own classes make of remote log metadata, one fact a line, for the tests in this directory:
 *
 *     javac -cp 'LIBS/*' -d OUT WriteRemoteLog.java
 *     java -cp 'OUT:LIBS/*' org.apache.kafka.server.log.remote.metadata.storage.WriteRemoteLog \
 *         | grep -v "^20" | gzip -9n > remote-log.txt.gz
 *
 * Lines: `record <fields> <hex>`, `partition <topic id> <partition> <count> <metadata partition>`, `within <segment end>
 * <segment epochs> <log end> <log epochs> <answer>`, `history <operations> | <answers>`.
 */
public class WriteRemoteLog {
    static final int EPOCHS = 5;
    static final int OFFSETS = 40;
    static final Random random = new Random(405);
    static final RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();

    public static void main(String[] args) throws Exception {
        records();
        partitions();
        within();
        for (int number = 0; number < 400; number++) {
            history(List.of("orderly", "leaders", "any").get(number % 3));
        }
    }

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static String epochs(Map<Integer, Long> epochs) {
        return epochs.isEmpty() ? "-" : new TreeMap<>(epochs).entrySet().stream()
            .map(each -> each.getKey() + ":" + each.getValue()).collect(Collectors.joining(","));
    }

    static void records() {
        String[] topics = {"orders", "a", "räume", "x".repeat(249)};
        for (int number = 0; number < 60; number++) {
            String topic = topics[number % topics.length];
            Uuid topicId = new Uuid(random.nextLong(), random.nextLong());
            Uuid id = new Uuid(random.nextLong(), random.nextLong());
            int partition = random.nextInt(100);
            TopicIdPartition key = new TopicIdPartition(topicId, new TopicPartition(topic, partition));
            RemoteLogSegmentId segmentId = new RemoteLogSegmentId(key, id);
            long start = random.nextInt(1_000_000), end = start + random.nextInt(1_000_000);
            if (number % 7 == 0) {
                start = Long.MAX_VALUE - 5;
                end = Long.MAX_VALUE - 1;
            }
            long maxTime = number % 5 == 0 ? -1 : random.nextLong() >>> 20, time = random.nextLong() >>> 20;
            int broker = random.nextInt(1000), size = number % 6 == 0 ? Integer.MAX_VALUE : random.nextInt(1 << 30);
            TreeMap<Integer, Long> epochs = new TreeMap<>();
            long offset = start;
            for (int count = 1 + random.nextInt(4), epoch = random.nextInt(3); count > 0; count--) {
                epochs.put(epoch, offset);
                epoch += 1 + random.nextInt(300);
                offset += 1 + random.nextInt(100);
            }
            byte[] custom = number % 3 == 0 ? null : new byte[random.nextInt(130)];
            if (custom != null) {
                random.nextBytes(custom);
            }
            boolean txnIdxEmpty = random.nextBoolean();
            RemoteLogSegmentState state = RemoteLogSegmentState.forId((byte) (number % 4));
            Optional<CustomMetadata> metadata = Optional.ofNullable(custom).map(CustomMetadata::new);
            String common = String.join(" ", topic, hex(topicId), "" + partition);
            String customText = custom == null ? "-" : "x" + hex(custom);
            RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(segmentId, start, end, maxTime, broker, time,
                size, metadata, state, epochs, txnIdxEmpty);
            System.out.println(String.join(" ", "record segment", common, hex(id), "" + start, "" + end, "" + maxTime,
                "" + broker, "" + time, "" + size, "" + state.id(), epochs(epochs), customText, "" + txnIdxEmpty,
                hex(serde.serialize(segment))));
            RemoteLogSegmentMetadataUpdate update =
                new RemoteLogSegmentMetadataUpdate(segmentId, time, metadata, state, broker);
            System.out.println(String.join(" ", "record update", common, hex(id), "" + time, "" + state.id(), "" + broker,
                customText, hex(serde.serialize(update))));
            RemotePartitionDeleteState deletion = RemotePartitionDeleteState.forId((byte) (number % 3));
            System.out.println(String.join(" ", "record delete", common, "" + deletion.id(), "" + time, "" + broker,
                hex(serde.serialize(new RemotePartitionDeleteMetadata(key, deletion, time, broker)))));
        }
    }

    static void partitions() {
        for (int number = 0; number < 300; number++) {
            Uuid topicId = new Uuid(random.nextLong(), random.nextLong());
            int partition = number % 50 == 0 ? Integer.MAX_VALUE : random.nextInt(200), count = 1 + random.nextInt(60);
            TopicIdPartition key = new TopicIdPartition(topicId, new TopicPartition("orders", partition));
            int found = new RemoteLogMetadataTopicPartitioner(count).metadataPartition(key);
            System.out.println(String.join(" ", "partition", hex(topicId), "" + partition, "" + count, "" + found));
        }
    }

    static TreeMap<Integer, Long> someEpochs(long start, int most) {
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        long offset = start;
        for (int epoch = random.nextInt(3); epoch < EPOCHS && epochs.size() < most; epoch += 1 + random.nextInt(2)) {
            epochs.put(epoch, offset);
            offset += 1 + random.nextInt(8);
        }
        return epochs;
    }

    static void within() throws Exception {
        Method method = RemoteLogManager.class.getDeclaredMethod(
            "isRemoteSegmentWithinLeaderEpochs", RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
        method.setAccessible(true);
        TopicIdPartition key = new TopicIdPartition(new Uuid(1, 1), new TopicPartition("orders", 0));
        for (int number = 0; number < 3000; number++) {
            TreeMap<Integer, Long> log = someEpochs(random.nextInt(6), 4);
            long logEnd = log.lastEntry().getValue() + random.nextInt(10);
            TreeMap<Integer, Long> own = new TreeMap<>();
            long start = random.nextInt(20);
            if (number % 3 == 0) {
                own = someEpochs(start, 3);
            } else {
                // As a leader with these epochs copies it, with at most one difference.
                for (Map.Entry<Integer, Long> each : log.entrySet()) {
                    if (each.getValue() <= start) {
                        own.clear();
                        own.put(each.getKey(), start);
                    } else if (random.nextInt(4) > 0) {
                        own.put(each.getKey(), each.getValue());
                    }
                }
                if (own.isEmpty()) {
                    continue;
                }
                start = own.firstEntry().getValue();
                if (number % 3 == 1 && own.size() > 1) {
                    own.pollLastEntry();
                }
            }
            long end = own.lastEntry().getValue() + random.nextInt(6);
            RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
                RemoteLogSegmentId.generateNew(key), start, end, 0, 1, 0, 1, own);
            Object answer = method.invoke(null, segment, logEnd, log);
            System.out.println(String.join(" ", "within", "" + end, epochs(own), "" + logEnd, epochs(log), "" + answer));
        }
    }

    static String name(RemoteLogSegmentMetadata segment) {
        return "" + segment.remoteLogSegmentId().id().getLeastSignificantBits();
    }

    /**
     * Operations: `+id start end epochs` begins a copy, `id>state` moves it. Kinds: `orderly`, without overlaps;
     * `leaders` that copy again what their predecessors have copied, and more; `any`.
     */
    static void history(String kind) throws Exception {
        boolean inOrder = !kind.equals("any"), leaders = kind.equals("leaders");
        TopicIdPartition key = new TopicIdPartition(new Uuid(1, 1), new TopicPartition("orders", 0));
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        cache.markInitialized();
        List<String> operations = new ArrayList<>();
        long next = 0;
        int segments = 0, epoch = 0;
        for (int count = 3 + random.nextInt(25); count > 0; count--) {
            if (segments == 0 || random.nextInt(3) == 0) {
                long start = inOrder ? next : random.nextInt(OFFSETS - 12);
                long end = start + random.nextInt(10);
                TreeMap<Integer, Long> epochs = new TreeMap<>();
                if (leaders) {
                    start = Math.max(0, next - random.nextInt(12));
                    end = Math.max(next, start + random.nextInt(10));
                }
                if (inOrder) {
                    epochs.put(epoch, start);
                    if (!leaders && random.nextInt(3) == 0 && epoch + 1 < EPOCHS && end > start) {
                        epochs.put(++epoch, start + 1 + random.nextInt((int) (end - start)));
                    }
                    next = end + 1;
                } else {
                    long offset = start;
                    for (int each = random.nextInt(EPOCHS); each < EPOCHS && offset <= end; each++) {
                        epochs.put(each, offset);
                        offset += 1 + random.nextInt(5);
                    }
                }
                RemoteLogSegmentId id = new RemoteLogSegmentId(key, new Uuid(0, ++segments));
                cache.addCopyInProgressSegment(
                    new RemoteLogSegmentMetadata(id, start, end, 0, 1, 0, 1, epochs));
                operations.add("+" + segments + " " + start + " " + end + " " + epochs(epochs));
                if (leaders) {
                    operations.add(segments + ">1");
                    cache.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                        id, 0, Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1));
                }
            } else {
                int number = 1 + random.nextInt(segments);
                byte state = (byte) (1 + random.nextInt(random.nextInt(3) == 0 ? 3 : 1));
                if (leaders && state == 1) {
                    continue;
                }
                operations.add(number + ">" + state);
                try {
                    cache.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                        new RemoteLogSegmentId(key, new Uuid(0, number)), 0, Optional.empty(),
                        RemoteLogSegmentState.forId(state), 1));
                } catch (RemoteResourceNotFoundException e) {
                    // It was deleted.
                }
            }
        }
        List<String> answers = new ArrayList<>();
        for (int each = 0; each < EPOCHS; each++) {
            List<String> found = new ArrayList<>();
            for (long offset = 0; offset < OFFSETS; offset++) {
                found.add(cache.remoteLogSegmentMetadata(each, offset).map(WriteRemoteLog::name).orElse("-"));
            }
            List<String> listed = new ArrayList<>();
            cache.listRemoteLogSegments(each).forEachRemaining(segment -> listed.add(name(segment)));
            answers.add(String.join(",", found) + " "
                + (listed.isEmpty() ? "-" : String.join(",", listed)) + " "
                + cache.highestOffsetForEpoch(each).map(String::valueOf).orElse("-"));
        }
        List<String> all = new ArrayList<>();
        cache.listAllRemoteLogSegments().forEachRemaining(segment -> all.add(name(segment)));
        answers.add(all.isEmpty() ? "-" : String.join(",", all));
        System.out.println("history " + kind + " | " + String.join(";", operations) + " | " + String.join(";", answers));
    }
}
