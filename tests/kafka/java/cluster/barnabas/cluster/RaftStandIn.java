package barnabas.cluster;

import kafka.raft.KafkaRaftManager;

import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;

import java.io.IOException;
import java.util.OptionalInt;

/** The quorum as its leader describes it. */
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
        var quorum = Wire.quorum(cluster.anyBroker().askedPort());
        return new LeaderAndEpoch(quorum.leaderId() < 0 ? OptionalInt.empty() : OptionalInt.of(quorum.leaderId()), quorum.leaderEpoch());
    }
}
