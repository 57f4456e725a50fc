package barnabas.cluster;

import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.MetadataResponse.PartitionMetadata;
import org.apache.kafka.common.requests.MetadataResponse.TopicMetadata;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** A broker's cache of the metadata: whatever its answers to Metadata show of it. */
final class MetadataStandIn {
    private static final int NO_LEADER = -1;

    private final barnabas.cluster.Node broker;

    MetadataStandIn(barnabas.cluster.Node broker) {
        this.broker = broker;
    }

    KRaftMetadataCache make() {
        return StandIn.of(KRaftMetadataCache.class)
            .on("getAllTopics", a -> topics().stream().map(TopicMetadata::topic).collect(Collectors.toSet()))
            .on("numPartitions", a -> topic(a[0]).map(topic -> topic.partitionMetadata().size()))
            .on("contains", a -> a[0] instanceof TopicPartition at ? partition(broker, at).isPresent() : topic(a[0]).isPresent())
            .on("getTopicId", a -> topic(a[0]).map(TopicMetadata::topicId).orElse(Uuid.ZERO_UUID))
            .on("getTopicName", a -> topics().stream().filter(topic -> topic.topicId().equals(a[0])).findFirst().map(TopicMetadata::topic))
            .on("hasAliveBroker", a -> brokers().containsKey(a[0]))
            .on("isBrokerFenced", a -> !brokers().containsKey(a[0]))
            .on("getAliveBrokerNode", a -> Optional.ofNullable(brokers().get(a[0])))
            .on("getAliveBrokerNodes", a -> List.copyOf(brokers().values()))
            .on("getLeaderAndIsr", a -> partition(broker, new TopicPartition((String) a[0], (Integer) a[1])).map(MetadataStandIn::leaderAndIsr))
            .on("getPartitionLeaderEndpoint", a -> leader(new TopicPartition((String) a[0], (Integer) a[1])))
            .on("getPartitionReplicaEndpoints", a -> replicas((TopicPartition) a[0]))
            .make();
    }

    static Optional<PartitionMetadata> partition(barnabas.cluster.Node broker, TopicPartition at) throws IOException {
        return Wire.metadata(broker.askedPort()).topicMetadata().stream().filter(topic -> topic.topic().equals(at.topic()))
            .flatMap(topic -> topic.partitionMetadata().stream()).filter(partition -> partition.partition() == at.partition()).findFirst();
    }

    /** What the cache has of a partition, but for its epoch, which no answer shows. */
    private static LeaderAndIsr leaderAndIsr(PartitionMetadata partition) {
        return new LeaderAndIsr(partition.leaderId.orElse(NO_LEADER), partition.leaderEpoch.orElse(-1), partition.inSyncReplicaIds,
            LeaderRecoveryState.RECOVERED, 0);
    }

    private MetadataResponse metadata() throws IOException {
        return Wire.metadata(broker.askedPort());
    }

    private List<TopicMetadata> topics() throws IOException {
        return List.copyOf(metadata().topicMetadata());
    }

    private Optional<TopicMetadata> topic(Object name) throws IOException {
        return topics().stream().filter(topic -> topic.topic().equals(name)).findFirst();
    }

    private Map<Integer, Node> brokers() throws IOException {
        return metadata().brokersById();
    }

    private Optional<Node> leader(TopicPartition at) throws IOException {
        Map<Integer, Node> brokers = brokers();
        return partition(broker, at).map(partition -> brokers.getOrDefault(partition.leaderId.orElse(NO_LEADER), Node.noNode()));
    }

    private Map<Integer, Node> replicas(TopicPartition at) throws IOException {
        Map<Integer, Node> brokers = brokers();
        return partition(broker, at).map(partition -> partition.replicaIds.stream().filter(brokers::containsKey)
            .collect(Collectors.toMap(id -> id, brokers::get))).orElse(Map.of());
    }
}
