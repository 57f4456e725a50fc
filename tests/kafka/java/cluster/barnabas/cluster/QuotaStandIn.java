package barnabas.cluster;

import kafka.network.ConnectionQuotas;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.QuotaFactory;
import kafka.server.QuotaFactory.QuotaManagers;
import kafka.server.ReplicationQuotaManager;
import kafka.server.metadata.ClientQuotaMetadataManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData.EntryData;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.metadata.ClientQuotaRecord.EntityData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.ClientQuotasDelta;
import org.apache.kafka.image.ClientQuotasImage;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientSensors;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;

import java.io.IOException;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

import org.mockito.Mockito;

/** The quotas that a broker reports, in Kafka's own managers, which tests ask which of them holds for a client. */
final class QuotaStandIn {
    /** Clients whose sensors a test asked Kafka's quota of requests for, which makes their metrics. */
    static final Set<String> ASKED = ConcurrentHashMap.newKeySet();

    private final Node node;

    QuotaStandIn(Node node) {
        this.node = node;
    }

    QuotaManagers managers() {
        return new QuotaManagers(
            clients(ClientQuotaManager.class, QuotaManagers::fetch), clients(ClientQuotaManager.class, QuotaManagers::produce),
            clients(ClientRequestQuotaManager.class, QuotaManagers::request),
            clients(ControllerMutationQuotaManager.class, QuotaManagers::controllerMutation),
            replication("leader.replication.throttled.rate"), replication("follower.replication.throttled.rate"),
            replication("replica.alter.log.dirs.io.max.bytes.per.second"), Optional.empty());
    }

    private <T extends ClientQuotaManager> T clients(Class<T> type, Function<QuotaManagers, ClientQuotaManager> which) {
        // Tests only lock these sensors while they read a metric.
        Sensor sensor = Mockito.mock(Sensor.class);
        return StandIn.of(type).on("quota", a -> {
            ClientQuotaManager manager = which.apply(filled(connectionQuotas()));
            return a[0] instanceof KafkaPrincipal user ? manager.quota(user, (String) a[1]) : manager.quota((String) a[0], (String) a[1]);
        }).on("getOrCreateQuotaSensors", a -> {
            ASKED.add((String) a[1]);
            return new ClientSensors(Map.of(), sensor, sensor);
        }).give("exemptSensor", sensor).make();
    }

    ConnectionQuotas connections() {
        return StandIn.of(ConnectionQuotas.class).on("connectionRateForIp", a -> {
            ConnectionQuotas quotas = connectionQuotas();
            filled(quotas);
            return quotas.connectionRateForIp((InetAddress) a[0]);
        }).make();
    }

    private ConnectionQuotas connectionQuotas() {
        return new ConnectionQuotas(node.config(), Time.SYSTEM, new Metrics());
    }

    /** New managers that have what the broker reports now. */
    private QuotaManagers filled(ConnectionQuotas connections) throws IOException {
        QuotaManagers managers = QuotaFactory.instantiate(node.config(), new Metrics(), Time.SYSTEM, "stand-in", "broker");
        ClientQuotasDelta delta = new ClientQuotasDelta(ClientQuotasImage.EMPTY);
        for (EntryData entry : Wire.clientQuotas(node.askedPort())) {
            List<EntityData> entity = entry.entity().stream()
                .map(part -> new EntityData().setEntityType(part.entityType()).setEntityName(part.entityName())).toList();
            entry.values().forEach(quota ->
                delta.replay(new ClientQuotaRecord().setEntity(entity).setKey(quota.key()).setValue(quota.value())));
        }
        new ClientQuotaMetadataManager(managers, connections).accept(delta);
        // Only its threads end; it still answers.
        managers.shutdown();
        return managers;
    }

    private ReplicationQuotaManager replication(String key) {
        return StandIn.of(ReplicationQuotaManager.class).on("upperBound", a -> {
            String rate = Wire.dynamicSettings(node.askedPort(), node.id).get(key);
            return rate == null ? QuotaConfig.QUOTA_BYTES_PER_SECOND_DEFAULT : Long.parseLong(rate);
        }).on("isThrottled", a -> {
            TopicPartition partition = (TopicPartition) a[0];
            String replicas = Wire.topicSetting(node.askedPort(), partition.topic(), key.replace(".rate", ".replicas"));
            return List.of(replicas.split(",")).contains(partition.partition() + ":" + node.id);
        }).make();
    }
}
