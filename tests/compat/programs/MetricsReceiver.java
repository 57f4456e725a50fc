import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;

/** A plug-in of Apache Kafka's broker: writes what clients push to a file, `name temporality value` in a line. */
public class MetricsReceiver implements MetricsReporter, ClientTelemetry {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of((String) configs.get("receiver.file"));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            try {
                StringBuilder lines = new StringBuilder();
                MetricsData data = MetricsData.parseFrom(payload.data());
                data.getResourceMetricsList().forEach(resource -> resource.getScopeMetricsList().forEach(
                    scope -> scope.getMetricsList().forEach(metric -> write(lines, metric))));
                lines.append("push ").append(payload.isTerminating() ? "terminating" : "regular").append(" 0\n");
                Files.writeString(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    private static void write(StringBuilder lines, Metric metric) {
        List<NumberDataPoint> points =
            metric.hasSum() ? metric.getSum().getDataPointsList() : metric.getGauge().getDataPointsList();
        String kind = metric.hasSum() ? metric.getSum().getAggregationTemporality().name() : "GAUGE";
        for (NumberDataPoint point : points) {
            lines.append(metric.getName()).append(' ').append(kind).append(' ').append(point.getAsDouble()).append('\n');
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
