package barnabas.cluster;

import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
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
import java.util.List;

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
        File directory = cluster.ofRole("controller").get(0).replica("__cluster_metadata", 0).orElseThrow();
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
