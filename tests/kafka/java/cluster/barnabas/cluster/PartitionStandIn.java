package barnabas.cluster;

import kafka.cluster.Partition;

import org.apache.kafka.common.TopicPartition;

import java.io.File;
import java.io.IOException;
import java.util.HashSet;
import java.util.Optional;
import java.util.Set;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A replica as its broker's ReplicaManager knows it. */
final class PartitionStandIn {
    private final Node node;
    private final TopicPartition at;

    private PartitionStandIn(Node node, TopicPartition at) {
        this.node = node;
        this.at = at;
    }

    /** None if the broker is down or has no such replica. */
    static Option<Partition> of(Cluster cluster, Node node, TopicPartition at) {
        Optional<File> directory = node.replica(at.topic(), at.partition());
        if (!node.up || directory.isEmpty()) return Option.empty();
        return Option.apply(new PartitionStandIn(node, at).make(new LogStandIn(cluster, node, at, directory.get())));
    }

    private Partition make(LogStandIn log) {
        return StandIn.of(Partition.class)
            .give("topicPartition", at)
            .on("isLeader", a -> leads())
            .on("leaderIdIfLocal", a -> leads() ? Option.apply((Object) node.id) : Option.empty())
            .on("leaderLogIfLocal", a -> leads() ? Option.apply(log.make()) : Option.empty())
            .on("leaderReplicaIdOpt", a -> leader().map(id -> Option.apply((Object) id)).orElse(Option.empty()))
            .on("getLeaderEpoch", a -> MetadataStandIn.partition(node, at).flatMap(partition -> partition.leaderEpoch).orElse(-1))
            .on("inSyncReplicaIds", a -> CollectionConverters.asScala(inSync()).toSet())
            .on("log", a -> Option.apply(log.make()))
            .on("localLogOrException", a -> log.make())
            .make();
    }

    private Optional<Integer> leader() throws IOException {
        return MetadataStandIn.partition(node, at).flatMap(partition -> partition.leaderId);
    }

    private boolean leads() throws IOException {
        return leader().equals(Optional.of(node.id));
    }

    private Set<Object> inSync() throws IOException {
        return MetadataStandIn.partition(node, at).map(partition -> new HashSet<Object>(partition.inSyncReplicaIds)).orElse(new HashSet<>());
    }
}
