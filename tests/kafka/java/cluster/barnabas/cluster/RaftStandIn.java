package barnabas.cluster;

import kafka.raft.KafkaRaftManager;

import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.storage.internals.log.LogSegment;

import java.io.File;
import java.io.IOException;
import java.util.OptionalInt;

/** The quorum as its leader describes it, and the metadata log as the files of a controller have it. */
final class RaftStandIn {
    private final Cluster cluster;

    RaftStandIn(Cluster cluster) {
        this.cluster = cluster;
    }

    KafkaRaftManager<?> make() {
        RaftLog log = StandIn.of(RaftLog.class)
            .on("endOffset", a -> {
                // Tests ask so as to wait until brokers have it all.
                cluster.awaitMetadata();
                return new LogOffsetMetadata(cluster.liveBrokers().isEmpty() ? 0 : cluster.metadataEnd());
            })
            .make();
        KafkaRaftClient<?> client = StandIn.of(KafkaRaftClient.class).on("leaderAndEpoch", a -> leaderAndEpoch()).make();
        return StandIn.of(KafkaRaftManager.class).give("raftLog", log).give("client", client).make();
    }

    private LeaderAndEpoch leaderAndEpoch() throws IOException {
        var quorum = Wire.quorum(cluster.anyBroker().port());
        return new LeaderAndEpoch(quorum.leaderId() < 0 ? OptionalInt.empty() : OptionalInt.of(quorum.leaderId()), quorum.leaderEpoch());
    }

    /** The epoch of a broker's last registration; no client is told it. */
    long brokerEpoch(int broker) throws IOException {
        Node controller = cluster.ofRole("controller").get(0);
        File directory = controller.replica("__cluster_metadata", 0).orElseThrow();
        long epoch = -1;
        for (LogSegment segment : new LogFiles(directory).segments()) {
            for (var batch : segment.log().batches()) {
                if (batch.isControlBatch()) continue;
                for (Record record : batch) {
                    var message = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize()).message();
                    if (message instanceof RegisterBrokerRecord registered && registered.brokerId() == broker) epoch = registered.brokerEpoch();
                }
            }
        }
        return epoch;
    }
}
