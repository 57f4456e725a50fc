package barnabas.cluster;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A replica's log: the offsets that its node reports, and the files of its directory. */
final class LogStandIn {
    private final Cluster cluster;
    private final Node node;
    private final TopicPartition at;
    private final File directory;

    LogStandIn(Cluster cluster, Node node, TopicPartition at, File directory) {
        this.cluster = cluster;
        this.node = node;
        this.at = at;
        this.directory = directory;
    }

    UnifiedLog make() {
        ProducerStateManager producers = StandIn.of(ProducerStateManager.class).on("activeProducers", a -> producers()).make();
        return StandIn.of(UnifiedLog.class)
            .give("topicPartition", at)
            .give("dir", directory)
            .give("parentDir", directory.getParent())
            .give("parentDirFile", directory.getParentFile())
            .on("logStartOffset", a -> Wire.offset(node.port(), at, Wire.AS_DEBUGGER, Wire.EARLIEST))
            .on("logEndOffset", a -> Wire.offset(node.port(), at, Wire.AS_DEBUGGER, Wire.LATEST))
            .on("highWatermark", a -> highWatermark())
            .give("producerStateManager", producers)
            .make();
    }

    /** A leader reports its high watermark; that of a follower is in the checkpoint, a little old. */
    private long highWatermark() throws IOException {
        Optional<Integer> leader = MetadataStandIn.partition(node, at).flatMap(partition -> partition.leaderId);
        if (leader.equals(Optional.of(node.id))) return Wire.offset(node.port(), at, Wire.AS_CONSUMER, Wire.LATEST);
        return checkpoint("replication-offset-checkpoint").getOrDefault(at, -1L);
    }

    private Map<TopicPartition, Long> checkpoint(String name) throws IOException {
        return new OffsetCheckpointFile(new File(directory.getParentFile(), name), null).read();
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
}
