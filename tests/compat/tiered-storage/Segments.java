import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/**
 * One segment in Kafka's LocalTieredStorage: `write DIR SOURCE` copies the files log, index, timeindex, txnindex (if it
 * is there), snapshot and epochs of SOURCE; `read DIR` prints a line `kind sha256` for each file that it finds;
 * `delete DIR` removes the segment.
 */
public class Segments {
    public static void main(String[] words) throws Exception {
        Path source = words.length > 2 ? Path.of(words[2]) : null;
        LocalTieredStorage storage = new LocalTieredStorage();
        Map<String, Object> config = new HashMap<>();
        config.put("dir", words[1]);
        config.put("broker.id", 1);
        storage.configure(config);
        int size = Integer.parseInt(System.getProperty("size"));
        TopicIdPartition partition = new TopicIdPartition(
            Uuid.fromString("LWgrMmVrT0a__7a4SasuPA"), new TopicPartition("orders.eu_1", 3));
        RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
            new RemoteLogSegmentId(partition, Uuid.fromString("bCqX9U--S-6U8XUM9II25Q")),
            11L, 99L, 1_750_000_000_000L, 1, 1_750_000_000_000L, size, Map.of(0, 11L));
        switch (words[0]) {
            case "write" -> {
                Path transactions = source.resolve("txnindex");
                storage.copyLogSegmentData(segment, new LogSegmentData(
                    source.resolve("log"), source.resolve("index"), source.resolve("timeindex"),
                    Files.exists(transactions) ? Optional.of(transactions) : Optional.empty(),
                    source.resolve("snapshot"), ByteBuffer.wrap(Files.readAllBytes(source.resolve("epochs")))));
            }
            case "read" -> {
                show("log", storage.fetchLogSegment(segment, 0));
                show("log-from-100", storage.fetchLogSegment(segment, 100));
                for (IndexType kind : IndexType.values()) {
                    try {
                        show(kind.name(), storage.fetchIndex(segment, kind));
                    } catch (RemoteResourceNotFoundException missing) {
                        System.out.println(kind.name() + " missing");
                    }
                }
            }
            case "delete" -> storage.deleteLogSegmentData(segment);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void show(String kind, InputStream stream) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(stream.readAllBytes());
        System.out.println(kind + " " + HexFormat.of().formatHex(digest));
    }
}
