package barnabas.cluster;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorageEvent;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorageListener;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

import scala.Option;

/**
 * The remote storage of a broker as tests look at it: Kafka's own LocalTieredStorage over the directory that the node uses, with
 * the events that the node has written down (tier_events.py).
 */
final class TierStandIn {
    private static final String CLASS = "remote.log.storage.manager.class.name";
    private static final String PREFIX = "remote.log.storage.manager.impl.prefix";
    private static final int POLL_MS = 5;

    private final Node node;
    private final LocalTieredStorage storage = new LocalTieredStorage();
    private final LocalTieredStorageListener listeners;
    private int number;

    private TierStandIn(Node node) throws ReflectiveOperationException {
        this.node = node;
        Field field = LocalTieredStorage.class.getDeclaredField("storageListeners");
        field.setAccessible(true);
        listeners = (LocalTieredStorageListener) field.get(storage);
        Map<String, Object> settings = new HashMap<>();
        String prefix = node.setting(PREFIX);
        String directory = node.setting((prefix == null ? "rsm.config." : prefix) + LocalTieredStorage.STORAGE_DIR_CONFIG);
        settings.put(LocalTieredStorage.STORAGE_DIR_CONFIG, directory);
        settings.put(LocalTieredStorage.BROKER_ID, node.id);
        storage.configure(settings);
    }

    /** None unless the test tiers its topics by that storage. */
    static Option<RemoteLogManager> of(Node node) throws ReflectiveOperationException {
        if (!LocalTieredStorage.class.getName().equals(node.setting(CLASS))) return Option.empty();
        TierStandIn made = new TierStandIn(node);
        Thread reader = new Thread(made::follow, "tier events of broker " + node.id);
        reader.setDaemon(true);
        reader.start();
        return Option.apply(StandIn.of(RemoteLogManager.class).on("storageManager", a -> made.storage).make());
    }

    private void follow() {
        try {
            while (!Path.of(node.tierEvents).toFile().exists()) Thread.sleep(POLL_MS);
            try (RandomAccessFile file = new RandomAccessFile(node.tierEvents, "r")) {
                while (true) {
                    long at = file.getFilePointer();
                    String line = file.readLine();
                    if (line == null || file.getFilePointer() - at == line.length()) {
                        // Nothing, or a line that is not whole yet.
                        file.seek(at);
                        Thread.sleep(POLL_MS);
                    } else {
                        tell(line.split(" "));
                    }
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void tell(String[] words) {
        TopicPartition partition = new TopicPartition(words[2], Integer.parseInt(words[3]));
        RemoteLogSegmentId id = new RemoteLogSegmentId(new TopicIdPartition(Uuid.fromString(words[1]), partition), Uuid.fromString(words[4]));
        long start = Long.parseLong(words[5]);
        RemoteLogSegmentMetadata metadata =
            new RemoteLogSegmentMetadata(id, start, Long.parseLong(words[6]), 0, node.id, 0, 1, Map.of(0, start));
        listeners.onStorageEvent(
            LocalTieredStorageEvent.newBuilder(node.id, LocalTieredStorageEvent.EventType.valueOf(words[0]), number++, id)
                .withMetadata(metadata).build());
    }
}
