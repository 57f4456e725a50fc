package barnabas.cluster;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData;
import org.apache.kafka.common.message.DescribeConfigsRequestData;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData;
import org.apache.kafka.common.message.DescribeQuorumResponseData;
import org.apache.kafka.common.message.IncrementalAlterConfigsRequestData;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.ListOffsetsResponseData.ListOffsetsPartitionResponse;
import org.apache.kafka.common.message.MetadataRequestData;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.requests.BrokerRegistrationRequest;
import org.apache.kafka.common.requests.BrokerRegistrationResponse;
import org.apache.kafka.common.requests.DescribeAclsRequest;
import org.apache.kafka.common.requests.DescribeAclsResponse;
import org.apache.kafka.common.requests.DescribeClientQuotasRequest;
import org.apache.kafka.common.requests.DescribeClientQuotasResponse;
import org.apache.kafka.common.requests.DescribeConfigsRequest;
import org.apache.kafka.common.requests.DescribeConfigsResponse;
import org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource;
import org.apache.kafka.common.requests.DescribeQuorumRequest;
import org.apache.kafka.common.requests.DescribeQuorumResponse;
import org.apache.kafka.common.requests.IncrementalAlterConfigsRequest;
import org.apache.kafka.common.requests.IncrementalAlterConfigsResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.server.IntegrationTestUtils;

import java.io.IOException;
import java.net.Socket;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Single questions to single nodes. */
final class Wire {
    private static final int PATIENCE_MS = 5000;
    private static final short LIST_OFFSETS = 7;
    private static final short METADATA = 12;
    /** The newest that names topics. */
    private static final short PRODUCE = 12;
    private static final short DESCRIBE_QUORUM = 2;
    private static final short DESCRIBE_CONFIGS = 4;
    private static final short DESCRIBE_ACLS = 3;
    private static final short DESCRIBE_CLIENT_QUOTAS = 1;
    private static final short REGISTER = 4;
    private static final short ALTER_CONFIGS = 1;

    static final long LATEST = -1;
    static final long EARLIEST = -2;
    /** Asks as a consumer: the end is the high watermark. */
    static final int AS_CONSUMER = -1;
    /** Asks as a debugger: any replica answers of its own log, whose end is the end. */
    static final int AS_DEBUGGER = -2;

    private Wire() { }

    static <T extends AbstractResponse> T ask(int port, AbstractRequest request) throws IOException {
        try (Socket socket = IntegrationTestUtils.connect(port)) {
            socket.setSoTimeout(PATIENCE_MS);
            return IntegrationTestUtils.sendAndReceive(request, socket);
        }
    }

    /** What this broker reports of all topics. */
    static MetadataResponse metadata(int port) throws IOException {
        return ask(port, new MetadataRequest(new MetadataRequestData().setTopics(null).setAllowAutoTopicCreation(false), METADATA));
    }

    /** An offset of this node's replica; -1 if it has none. */
    static long offset(int port, TopicPartition partition, int asReplica, long timestamp) throws IOException {
        ListOffsetsPartitionResponse found = listOffsets(port, partition, asReplica, timestamp);
        return found.errorCode() == Errors.NONE.code() ? found.offset() : -1;
    }

    static ListOffsetsPartitionResponse listOffsets(int port, TopicPartition partition, int asReplica, long timestamp) throws IOException {
        ListOffsetsTopic topic = new ListOffsetsTopic().setName(partition.topic())
            .setPartitions(List.of(new ListOffsetsPartition().setPartitionIndex(partition.partition()).setTimestamp(timestamp)));
        ListOffsetsResponse answer = ask(port, ListOffsetsRequest.Builder.forReplica(LIST_OFFSETS, asReplica)
            .setTargetTimes(List.of(topic)).build(LIST_OFFSETS));
        return answer.topics().get(0).partitions().get(0);
    }

    /** Appends a batch with acks=all. */
    static void produce(int port, TopicPartition partition, MemoryRecords records) throws IOException {
        ProduceRequestData data = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(PATIENCE_MS);
        data.topicData().add(new TopicProduceData().setName(partition.topic()).setPartitionData(
            List.of(new PartitionProduceData().setIndex(partition.partition()).setRecords(records))));
        ProduceResponse answer = ask(port, new ProduceRequest.Builder(PRODUCE, PRODUCE, data).build(PRODUCE));
        short error = answer.data().responses().iterator().next().partitionResponses().get(0).errorCode();
        if (error != Errors.NONE.code()) throw new IOException(Errors.forCode(error).message());
    }

    /** A broker's settings that were changed while it runs, its own and those of all brokers. */
    static Map<String, String> dynamicSettings(int port, int broker) throws IOException {
        Map<String, String> settings = new HashMap<>();
        for (var each : settings(port, ConfigResource.Type.BROKER, Integer.toString(broker))) {
            ConfigSource source = ConfigSource.forId(each.configSource());
            boolean dynamic = source == ConfigSource.DYNAMIC_BROKER_CONFIG || source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG;
            if (dynamic && each.value() != null) settings.put(each.name(), each.value());
        }
        return settings;
    }

    /** Empty if the topic does not have it. */
    static String topicSetting(int port, String topic, String key) throws IOException {
        for (var each : settings(port, ConfigResource.Type.TOPIC, topic))
            if (each.name().equals(key) && each.value() != null) return each.value();
        return "";
    }

    private static List<DescribeConfigsResponseData.DescribeConfigsResourceResult> settings(
        int port, ConfigResource.Type type, String name) throws IOException {
        var resource = new DescribeConfigsResource().setResourceType(type.id()).setResourceName(name);
        DescribeConfigsResponse answer = ask(port, new DescribeConfigsRequest.Builder(
            new DescribeConfigsRequestData().setResources(List.of(resource))).build(DESCRIBE_CONFIGS));
        return answer.data().results().get(0).configs();
    }

    /** Registers a broker at a controller. Returns its epoch. */
    static long registerBroker(int port, BrokerRegistrationRequestData data) throws IOException {
        BrokerRegistrationResponse answer = ask(port, new BrokerRegistrationRequest.Builder(data).build(REGISTER));
        if (answer.data().errorCode() != Errors.NONE.code()) throw new IOException(Errors.forCode(answer.data().errorCode()).message());
        return answer.data().brokerEpoch();
    }

    /** Alters configs at a controller: by resource and key an operation and a value. Returns the errors by resource. */
    static Map<ConfigResource, ApiError> alterConfigs(int port, Map<?, ?> changes) throws IOException {
        IncrementalAlterConfigsRequestData data = new IncrementalAlterConfigsRequestData();
        Map<ConfigResource, ApiError> errors = new HashMap<>();
        changes.forEach((resource, entries) -> {
            ConfigResource altered = (ConfigResource) resource;
            var configs = new IncrementalAlterConfigsRequestData.AlterableConfigCollection();
            ((Map<?, ?>) entries).forEach((key, entry) -> {
                Map.Entry<?, ?> operation = (Map.Entry<?, ?>) entry;
                configs.add(new IncrementalAlterConfigsRequestData.AlterableConfig().setName((String) key)
                    .setConfigOperation(((AlterConfigOp.OpType) operation.getKey()).id()).setValue((String) operation.getValue()));
            });
            data.resources().add(new IncrementalAlterConfigsRequestData.AlterConfigsResource()
                .setResourceType(altered.type().id()).setResourceName(altered.name()).setConfigs(configs));
        });
        IncrementalAlterConfigsResponse answer = ask(port, new IncrementalAlterConfigsRequest.Builder(data).build(ALTER_CONFIGS));
        for (var each : answer.data().responses())
            errors.put(new ConfigResource(ConfigResource.Type.forId(each.resourceType()), each.resourceName()),
                new ApiError(Errors.forCode(each.errorCode()), each.errorMessage()));
        return errors;
    }

    static List<DescribeClientQuotasResponseData.EntryData> clientQuotas(int port) throws IOException {
        DescribeClientQuotasResponse answer = ask(port,
            new DescribeClientQuotasRequest.Builder(ClientQuotaFilter.all()).build(DESCRIBE_CLIENT_QUOTAS));
        if (answer.data().errorCode() != Errors.NONE.code()) throw new IOException(Errors.forCode(answer.data().errorCode()).message());
        return answer.data().entries();
    }

    /** The ACLs that a node's authorizer has; empty if it does not answer those who have not logged in. */
    static Optional<List<AclBinding>> acls(int port, AclBindingFilter filter) throws IOException {
        DescribeAclsResponse answer = ask(port, new DescribeAclsRequest.Builder(filter).build(DESCRIBE_ACLS));
        return answer.error().error() == Errors.NONE ? Optional.of(DescribeAclsResponse.aclBindings(answer.acls())) : Optional.empty();
    }

    /** The metadata log as the active controller reports it. */
    static DescribeQuorumResponseData.PartitionData quorum(int port) throws IOException {
        var request = DescribeQuorumRequest.singletonRequest(new TopicPartition("__cluster_metadata", 0));
        DescribeQuorumResponse answer = ask(port, new DescribeQuorumRequest.Builder(request).build(DESCRIBE_QUORUM));
        if (answer.data().errorCode() != Errors.NONE.code()) throw new IOException(Errors.forCode(answer.data().errorCode()).message());
        return answer.data().topics().get(0).partitions().get(0);
    }
}
