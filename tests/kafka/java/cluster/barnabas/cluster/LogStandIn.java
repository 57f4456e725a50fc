package barnabas.cluster;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A replica's log: the offsets that its node reports, and the files of its directory. */
final class LogStandIn {
    static final String HIGH_WATERMARKS = "replication-offset-checkpoint";
    private static final String OFFSETS_TOPIC = "__consumer_offsets";
    private static final long PATIENCE_MS = 15_000;

    private final Cluster cluster;
    private final Node node;
    private final TopicPartition at;
    private final File directory;
    private final LogFiles files;

    LogStandIn(Cluster cluster, Node node, TopicPartition at, File directory) {
        this.cluster = cluster;
        this.node = node;
        this.at = at;
        this.directory = directory;
        files = new LogFiles(directory);
    }

    UnifiedLog make() {
        ProducerStateManager producers = StandIn.of(ProducerStateManager.class).on("activeProducers", a -> producers()).make();
        return StandIn.of(UnifiedLog.class)
            .give("topicPartition", at)
            .give("dir", directory)
            .give("parentDir", directory.getParent())
            .give("parentDirFile", directory.getParentFile())
            .on("partitionMetadataFile", a -> Optional.of(new PartitionMetadataFile(PartitionMetadataFile.newFile(directory), null)))
            .on("logStartOffset", a -> Wire.offset(node.askedPort(), at, Wire.AS_DEBUGGER, Wire.EARLIEST))
            .on("localLogStartOffset", a -> Math.max(Wire.offset(node.askedPort(), at, Wire.AS_DEBUGGER, Wire.EARLIEST), files.baseOffsets().get(0)))
            .on("leaderEpochCache", a -> StandIn.of(LeaderEpochFileCache.class).on("earliestEntry", b -> earliestEpoch()).make())
            .on("logEndOffset", a -> end())
            .on("logEndOffsetMetadata", a -> new LogOffsetMetadata(end()))
            .on("highWatermark", a -> highWatermark())
            .on("updateHighWatermark", a -> awaitHighWatermark(a[0] instanceof LogOffsetMetadata offset ? offset.messageOffset : (Long) a[0]))
            .on("maybeIncrementHighWatermark", a -> {
                awaitHighWatermark(((LogOffsetMetadata) a[0]).messageOffset);
                return Optional.empty();
            })
            .on("fetchOffsetByTimestamp", a -> byTimestamp((Long) a[0]))
            .on("maybeIncrementLogStartOffset", a -> deleteRecords((Long) a[0]))
            .on("config", a -> new LogConfig(Configs.ofTopic(cluster, at.topic())))
            // Nodes flush by themselves, and no test looks at what a disk has.
            .give("flush", null)
            .on("size", a -> files.size())
            .on("numberOfSegments", a -> files.baseOffsets().size())
            .on("logSegments", a -> files.segments())
            .on("activeSegment", a -> {
                List<LogSegment> segments = files.segments();
                return segments.get(segments.size() - 1);
            })
            .on("appendAsLeader", a -> {
                Wire.produce(node.askedPort(), at, (MemoryRecords) a[0]);
                return null;
            })
            .on("appendAsLeaderWithRecordVersion", a -> {
                appendLegacy((MemoryRecords) a[0]);
                return null;
            })
            .on("roll", a -> {
                roll();
                return null;
            })
            .give("producerStateManager", producers)
            .make();
    }

    /** The epoch of the log start: what is before it is forgotten. */
    private Optional<EpochEntry> earliestEpoch() throws IOException {
        var start = Wire.listOffsets(node.askedPort(), at, Wire.AS_DEBUGGER, Wire.EARLIEST);
        return start.leaderEpoch() < 0 ? Optional.empty() : Optional.of(new EpochEntry(start.leaderEpoch(), start.offset()));
    }

    private long end() throws IOException {
        return Wire.offset(node.askedPort(), at, Wire.AS_DEBUGGER, Wire.LATEST);
    }

    /** A leader reports its high watermark; that of a follower is in the checkpoint, a little old. */
    long highWatermark() throws IOException {
        Optional<Integer> leader = MetadataStandIn.partition(node, at).flatMap(partition -> partition.leaderId);
        if (leader.equals(Optional.of(node.id))) return Wire.offset(node.askedPort(), at, Wire.AS_CONSUMER, Wire.LATEST);
        return files.checkpoint(HIGH_WATERMARKS, at);
    }

    private long awaitHighWatermark(long wanted) {
        Eventually.is(PATIENCE_MS, at + " has the high watermark " + wanted, () -> highWatermark() >= wanted);
        return wanted;
    }

    private OffsetResultHolder byTimestamp(long timestamp) throws IOException {
        var found = Wire.listOffsets(node.askedPort(), at, Wire.AS_DEBUGGER, timestamp);
        if (found.errorCode() != 0 || found.offset() < 0) return new OffsetResultHolder(Optional.empty());
        return new OffsetResultHolder(new FileRecords.TimestampAndOffset(found.timestamp(), found.offset(),
            found.leaderEpoch() < 0 ? Optional.empty() : Optional.of(found.leaderEpoch())));
    }

    private boolean deleteRecords(long before) throws Exception {
        try (Admin admin = Configs.admin(cluster)) {
            admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(before))).all().get();
        }
        return true;
    }

    private Map<Long, ProducerStateEntry> producers() throws Exception {
        Map<Long, ProducerStateEntry> entries = new HashMap<>();
        try (Admin admin = Configs.admin(cluster)) {
            var states = admin.describeProducers(List.of(at), new DescribeProducersOptions().brokerId(node.id)).partitionResult(at).get();
            for (ProducerState state : states.activeProducers())
                entries.put(state.producerId(), new ProducerStateEntry(state.producerId(), (short) state.producerEpoch(),
                    state.coordinatorEpoch().orElse(-1), state.lastTimestamp(), state.currentTransactionStartOffset()));
        }
        return entries;
    }

    /** Nobody can produce the formats of old versions; they are in logs that such a version wrote. */
    private void appendLegacy(MemoryRecords records) throws IOException {
        if (end() != 0) throw Unanswered.because("INTERNALS: UnifiedLog.appendAsLeaderWithRecordVersion() to a log with records");
        ByteBuffer bytes = records.buffer().duplicate();
        cluster.stop(node.id);
        files.append(Utils.toArray(bytes));
        cluster.start(List.of(node.id));
        cluster.awaitMetadata();
    }

    /** Lets the time of the active segment run out, and adds a record, before which the log rolls. */
    private void roll() throws Exception {
        int segments = files.baseOffsets().size();
        try (Admin admin = Configs.admin(cluster)) {
            setSegmentTime(admin, AlterConfigOp.OpType.SET);
            if (at.topic().equals(OFFSETS_TOPIC)) admin.alterConsumerGroupOffsets(groupOf(admin), Map.of(at, new OffsetAndMetadata(0))).all().get();
            else Wire.produce(node.askedPort(), at, MemoryRecords.withRecords(Compression.NONE, new SimpleRecord("roll".getBytes(), "roll".getBytes())));
            Eventually.is(PATIENCE_MS, at + " has a new segment", () -> files.baseOffsets().size() > segments);
            setSegmentTime(admin, AlterConfigOp.OpType.DELETE);
        }
    }

    private void setSegmentTime(Admin admin, AlterConfigOp.OpType operation) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, at.topic());
        admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("segment.ms", "1"), operation)))).all().get();
        cluster.awaitMetadata();
    }

    /** A group whose offsets are in this partition. */
    private String groupOf(Admin admin) throws Exception {
        int partitions = admin.describeTopics(List.of(at.topic())).allTopicNames().get().get(at.topic()).partitions().size();
        int number = 0;
        while (Utils.abs(("roll-" + number).hashCode()) % partitions != at.partition()) number++;
        return "roll-" + number;
    }
}
