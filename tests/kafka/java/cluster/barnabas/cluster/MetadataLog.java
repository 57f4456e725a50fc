package barnabas.cluster;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metadata.AccessControlEntryRecord;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveAccessControlEntryRecord;
import org.apache.kafka.common.metadata.RemoveDelegationTokenRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.storage.internals.log.LogSegment;

import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;

import org.mockito.Mockito;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The records of the metadata log, as the files of a controller have them: what no answer to a client shows. */
final class MetadataLog {
    private final Cluster cluster;

    MetadataLog(Cluster cluster) {
        this.cluster = cluster;
    }

    /** The epoch of a broker's last registration. */
    long brokerEpoch(int broker) throws IOException {
        long epoch = -1;
        for (ApiMessage record : records())
            if (record instanceof RegisterBrokerRecord registered && registered.brokerId() == broker) epoch = registered.brokerEpoch();
        return epoch;
    }

    /** Elections of leaders that were not in sync: they begin as recovering. */
    long uncleanElections() throws IOException {
        return records().stream().filter(record -> record instanceof PartitionChangeRecord change
            && change.leaderRecoveryState() == LeaderRecoveryState.RECOVERING.value()).count();
    }

    /** Tests make ACLs by the authorizer of the active controller, and wait until each node's authorizer has them. */
    Plugin<Authorizer> authorizer(Node node) {
        Authorizer authorizer = StandIn.of(Authorizer.class)
            .on("acls", a -> acls(node, (AclBindingFilter) a[0]))
            .on("createAcls", a -> Acls.create(cluster, (List<?>) a[1]))
            .on("deleteAcls", a -> Acls.delete(cluster, (List<?>) a[1]))
            .make();
        return Plugin.wrapInstance(authorizer, null, "authorizer.class.name");
    }

    /** The node's own answer, or else the ACLs of its copy of the log, which it may not have applied yet. */
    private List<AclBinding> acls(Node node, AclBindingFilter filter) throws IOException {
        if (node.plainPort().isPresent()) {
            Optional<List<AclBinding>> answer = Wire.acls(node.askedPort(), filter);
            if (answer.isPresent()) return answer.get();
        }
        return written(node).stream().filter(filter::matches).toList();
    }

    private List<AclBinding> written(Node node) throws IOException {
        Map<Uuid, AclBinding> acls = new LinkedHashMap<>();
        for (ApiMessage record : records(node)) {
            if (record instanceof AccessControlEntryRecord added) acls.put(added.id(), StandardAcl.fromRecord(added).toBinding());
            if (record instanceof RemoveAccessControlEntryRecord removed) acls.remove(removed.id());
        }
        return List.copyOf(acls.values());
    }

    /** The delegation tokens. */
    Collection<TokenInformation> tokens() throws IOException {
        Map<String, TokenInformation> tokens = new LinkedHashMap<>();
        for (ApiMessage record : records()) {
            if (record instanceof DelegationTokenRecord token)
                tokens.put(token.tokenId(), new TokenInformation(token.tokenId(), SecurityUtils.parseKafkaPrincipal(token.owner()),
                    SecurityUtils.parseKafkaPrincipal(token.requester()),
                    token.renewers().stream().map(SecurityUtils::parseKafkaPrincipal).toList(),
                    token.issueTimestamp(), token.maxTimestamp(), token.expirationTimestamp()));
            if (record instanceof RemoveDelegationTokenRecord removed) tokens.remove(removed.tokenId());
        }
        return tokens.values();
    }

    /** Tests look for this meter in the registry of their own process, where Kafka's controller would have put it. */
    void registerMeter() throws ReflectiveOperationException {
        MetricName name = new MetricName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec");
        MetricsRegistry registry = KafkaYammerMetrics.defaultRegistry();
        registry.removeMetric(name);
        Method add = MetricsRegistry.class.getDeclaredMethod("getOrAdd", MetricName.class, Metric.class);
        add.setAccessible(true);
        // Reporters call its other methods in threads of their own, where no test is to be skipped for it.
        add.invoke(registry, name, Mockito.mock(Meter.class, call ->
            call.getMethod().getName().equals("count") ? uncleanElections() : Mockito.RETURNS_DEFAULTS.answer(call)));
    }

    private List<ApiMessage> records() throws IOException {
        return records(cluster.ofRole("controller").get(0));
    }

    private List<ApiMessage> records(Node node) throws IOException {
        File directory = node.replica("__cluster_metadata", 0).orElseThrow();
        List<ApiMessage> records = new ArrayList<>();
        for (LogSegment segment : new LogFiles(directory).segments()) {
            for (var batch : segment.log().batches()) {
                if (batch.isControlBatch()) continue;
                for (Record record : batch)
                    records.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize()).message());
            }
        }
        return records;
    }
}
