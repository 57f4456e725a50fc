package barnabas.cluster;

import barnabas.cluster.Scrape.Sample;

import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.Histogram;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricsRegistry;

import org.mockito.Mockito;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/** A node's metrics of quotas and logins, as its page reports them. */
final class MetricsStandIn {
    /** Group of Kafka's throttle-time, and the family that has a sample for each client that it knows. */
    private static final Map<String, String> USED = Map.of("Produce", "produce_byte_rate", "Fetch", "fetch_byte_rate",
        "Request", "request_request_time", "ControllerMutation", "controllermutation_mutation_rate");
    private static final List<String> LOGINS = List.of("successful-authentication-total", "failed-authentication-total",
        "successful-reauthentication-total", "failed-reauthentication-total", "successful-authentication-no-reauth-total",
        "expired-connections-killed-count");
    private static final String PREFIX = "kafka_server_";

    private static final Set<String> ANSWERED = Set.of("throttle-time", "request-time", "exempt-request-time", "tokens", "byte-rate");

    private final Node node;
    private final Supplier<Node> broker;
    private final Scrape scrape;

    /** The quotas are those that the broker reports. */
    MetricsStandIn(Node node, Supplier<Node> broker) {
        if (node.setting(Scrape.LISTENER) == null) throw Unanswered.because("INTERNALS: metrics of a " + node.role);
        this.node = node;
        this.broker = broker;
        scrape = new Scrape(node);
    }

    Metrics make() {
        return StandIn.of(Metrics.class)
            .on("metricName", a -> name(a))
            .on("metrics", a -> new Known())
            .on("metric", a -> new Known().get(a[0]))
            .make();
    }

    /** All overloads: name and group, maybe a description, maybe tags as a map or one after the other. */
    private static MetricName name(Object[] arguments) {
        Map<String, String> tags = new HashMap<>();
        for (int i = 2; i < arguments.length; i++)
            if (arguments[i] instanceof Map<?, ?> map) map.forEach((key, value) -> tags.put((String) key, (String) value));
            else if (i >= 3 && i % 2 == 1 && i + 1 < arguments.length) tags.put((String) arguments[i], (String) arguments[i + 1]);
        return new MetricName((String) arguments[0], (String) arguments[1], "", tags);
    }

    /** These metrics can also be enumerated; to ask for anything else skips the test. */
    private final class Known extends HashMap<MetricName, KafkaMetric> {
        Known() throws IOException {
            scrape.refresh();
            for (Map.Entry<String, String> group : USED.entrySet())
                for (Sample used : scrape.samples(PREFIX + group.getValue())) {
                    Map<String, String> tags = Map.of("user", used.labels().get("user"), "client-id", used.labels().get("client_id"));
                    put("throttle-time", group.getKey(), tags,
                        () -> value(PREFIX + group.getKey().toLowerCase(Locale.ROOT) + "_throttle_time", used.labels()));
                    if (group.getKey().equals("Request")) put("request-time", "Request", tags, used::value);
                }
            for (String client : QuotaStandIn.ASKED)
                for (String name : List.of("throttle-time", "request-time")) {
                    MetricName full = new MetricName(name, "Request", "", Map.of("user", "", "client-id", client));
                    if (!containsKey(full)) put(name, "Request", full.tags(), () -> Double.NaN);
                }
            for (Sample bucket : scrape.samples(PREFIX + "controllermutation_tokens"))
                putTokens(bucket.labels().get("user"), bucket.labels().get("client_id"), bucket.value());
            for (String direction : List.of("LeaderReplication", "FollowerReplication"))
                put("byte-rate", direction, Map.of(), () -> value(PREFIX + direction.toLowerCase(Locale.ROOT) + "_byte_rate", Map.of()));
            put("exempt-request-time", "Request", Map.of(), () -> value(PREFIX + "request_exempt_request_time", Map.of()));
            for (String login : LOGINS)
                for (Sample count : scrape.samples(family(login)))
                    put(login, "socket-server-metrics", Map.of("listener", count.labels().get("listener")), () -> value(family(login), count.labels()));
        }

        private void put(String name, String group, Map<String, String> tags, Supplier<Double> value) {
            MetricName full = new MetricName(name, group, "", tags);
            put(full, StandIn.of(KafkaMetric.class).give("metricName", full).on("metricValue", a -> value.get()).make());
        }

        /** With the quota, and the settings that say how long its burst is. */
        private void putTokens(String user, String client, double tokens) {
            QuotaConfig settings = node.config().quotaConfig();
            MetricConfig config = new MetricConfig().samples(settings.numControllerQuotaSamples())
                .timeWindow(settings.controllerQuotaWindowSizeSeconds(), TimeUnit.SECONDS)
                .quota(new QuotaStandIn(broker.get()).managers().controllerMutation().quota(user, client));
            MetricName full = new MetricName("tokens", "ControllerMutation", "", Map.of("user", user, "client-id", client));
            put(full, StandIn.of(KafkaMetric.class).give("metricName", full).give("metricValue", tokens).give("config", config).make());
        }

        @Override
        public KafkaMetric get(Object name) {
            String wanted = ((MetricName) name).name();
            if (!ANSWERED.contains(wanted) && !LOGINS.contains(wanted))
                throw Unanswered.because("INTERNALS: the metric " + wanted);
            return super.get(name);
        }
    }

    private static String family(String login) {
        String family = PREFIX + "socketservermetrics_" + login.replace('-', '_');
        return family.endsWith("_total") ? family : family + "_total";
    }

    /** NaN if there is no such sample: the client was never held back. */
    private double value(String family, Map<String, String> labels) {
        try {
            return scrape.samples(family).stream().filter(sample -> sample.labels().equals(labels)).mapToDouble(Sample::value).findFirst()
                .orElse(Double.NaN);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * Tests look for these in the registry of their own process. The largest throttle time is the sum of those of all brokers
     * here: tests compare it with 0.
     */
    static void register(Cluster cluster) throws ReflectiveOperationException {
        Map<Node, Scrape> scrapes = new HashMap<>();
        for (Map.Entry<String, String> request : Map.of("Produce", "Produce", "FetchConsumer", "Fetch").entrySet()) {
            Histogram histogram = Mockito.mock(Histogram.class, call -> call.getMethod().getName().equals("max")
                ? sum(cluster, scrapes, "kafka_network_requestmetrics_throttletimems_total", Map.of("request", request.getValue()))
                : Mockito.RETURNS_DEFAULTS.answer(call));
            register("RequestMetrics", "ThrottleTimeMs", Map.of("request", request.getKey()), histogram);
        }
        register("SocketServer", "ExpiredConnectionsKilledCount", Map.of(), new Gauge<Double>() {
            @Override
            public Double value() {
                try {
                    return sum(cluster, scrapes, family("expired-connections-killed-count"), Map.of());
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
        });
    }

    private static void register(String type, String name, Map<String, String> tags, Metric metric) throws ReflectiveOperationException {
        var full = KafkaYammerMetrics.getMetricName("kafka.network", type, name, new LinkedHashMap<>(tags));
        MetricsRegistry registry = KafkaYammerMetrics.defaultRegistry();
        Method add = MetricsRegistry.class.getDeclaredMethod("getOrAdd", com.yammer.metrics.core.MetricName.class, Metric.class);
        add.setAccessible(true);
        registry.removeMetric(full);
        add.invoke(registry, full, metric);
    }

    private static double sum(Cluster cluster, Map<Node, Scrape> scrapes, String family, Map<String, String> labels) throws IOException {
        double sum = 0;
        for (Node broker : cluster.liveBrokers())
            for (Sample sample : scrapes.computeIfAbsent(broker, Scrape::new).samples(family))
                if (sample.labels().entrySet().containsAll(labels.entrySet())) sum += sample.value();
        return sum;
    }
}
