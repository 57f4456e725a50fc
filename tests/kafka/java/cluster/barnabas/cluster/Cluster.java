package barnabas.cluster;

import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

import com.fasterxml.jackson.databind.JsonNode;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** The nodes of one test. They live in processes of their own; this is the handle that the stand-ins share. */
final class Cluster {
    private static final long PATIENCE_MS = 60_000;

    final String name;
    final String id;
    final Map<Integer, Node> nodes = new TreeMap<>();
    private boolean dropped;

    /**
     * Each node is a map of id, role, settings, and disks or log_dirs; users are those of SCRAM in the form of --add-scram:
     * see node_server.py.
     */
    Cluster(String name, Map<String, Integer> levels, List<String> users, List<Map<String, Object>> wanted) {
        this.name = name;
        JsonNode answer = NodeServer.ask(
            Map.of("do", "create", "name", name, "levels", levels, "users", users, "nodes", wanted));
        id = answer.get("cluster_id").asText();
        answer.get("nodes").forEach(this::keep);
    }

    /** What Kafka's own test kit finalizes: a version other than the newest brings the other features' levels of its time. */
    static Map<String, Integer> levels(MetadataVersion version, Map<Feature, Short> named) {
        Map<String, Integer> levels = new HashMap<>();
        if (version != MetadataVersion.latestTesting()) {
            for (Feature feature : Feature.PRODUCTION_FEATURES) levels.put(feature.featureName(), (int) feature.defaultLevel(version));
            levels.remove("kraft.version");
            levels.put(MetadataVersion.FEATURE_NAME, (int) version.featureLevel());
        }
        named.forEach((feature, level) -> levels.put(feature.featureName(), (int) level));
        return levels;
    }

    Node add(Map<String, Object> wanted) {
        return keep(NodeServer.ask(Map.of("do", "add", "node", wanted)).get("nodes").get(0));
    }

    private Node keep(JsonNode described) {
        Node node = new Node(described);
        nodes.put(node.id, node);
        return node;
    }

    void start(List<Integer> ids) {
        NodeServer.ask(Map.of("do", "start", "ids", ids));
        ids.forEach(each -> nodes.get(each).up = true);
    }

    void stop(int node) {
        nodes.get(node).up = false;
        NodeServer.ask(Map.of("do", "stop", "id", node));
    }

    /** Reports the nodes that had ended without being asked to. */
    List<String> drop(boolean keepLogs) {
        List<String> lost = new ArrayList<>();
        if (!dropped) NodeServer.ask(Map.of("do", "drop", "keep", keepLogs)).get("lost").forEach(each -> lost.add(each.asText()));
        dropped = true;
        return lost;
    }

    List<Node> ofRole(String role) {
        return nodes.values().stream().filter(node -> node.role.equals(role)).toList();
    }

    List<Node> liveBrokers() {
        return ofRole("broker").stream().filter(node -> node.up).toList();
    }

    /** One broker that is up. */
    Node anyBroker() {
        return liveBrokers().stream().findFirst().orElseThrow(() -> new IllegalStateException("no broker is up"));
    }

    long metadataEnd() throws IOException {
        return Wire.quorum(anyBroker().askedPort()).currentVoters().stream().mapToLong(voter -> voter.logEndOffset()).max().orElse(0);
    }

    /** Where each node's copy of the metadata log ends, as the active controller has seen it. */
    Map<Integer, Long> metadataEnds() throws IOException {
        Map<Integer, Long> ends = new HashMap<>();
        var log = Wire.quorum(anyBroker().askedPort());
        log.currentVoters().forEach(voter -> ends.put(voter.replicaId(), voter.logEndOffset()));
        log.observers().forEach(observer -> ends.put(observer.replicaId(), observer.logEndOffset()));
        return ends;
    }

    /** Waits until all brokers that are up have what the controller has written by now. */
    void awaitMetadata() {
        if (liveBrokers().isEmpty()) return;
        long[] end = {-1};
        Eventually.is(PATIENCE_MS, "all brokers have the metadata log up to its end", () -> {
            if (end[0] < 0) end[0] = metadataEnd();
            Map<Integer, Long> ends = metadataEnds();
            return liveBrokers().stream().allMatch(broker -> ends.getOrDefault(broker.id, -1L) >= end[0]);
        });
        Eventually.is(PATIENCE_MS, "all brokers report the same metadata", () -> {
            Set<String> views = new HashSet<>();
            for (Node broker : liveBrokers()) views.add(view(Wire.metadata(broker.askedPort())));
            return views.size() < 2;
        });
        // A broker applies configurations a moment after it fetched them, and no request reports that.
        Eventually.pause(50);
    }

    private static String view(MetadataResponse metadata) {
        List<String> lines = new ArrayList<>();
        metadata.topicMetadata().forEach(topic -> topic.partitionMetadata().forEach(partition -> lines.add(
            topic.topicId() + " " + partition.topicPartition + " " + partition.leaderId + " " + partition.leaderEpoch
                + " " + partition.replicaIds + " " + partition.inSyncReplicaIds)));
        metadata.brokersById().keySet().forEach(broker -> lines.add("broker " + broker));
        return String.join("\n", lines.stream().sorted().toList());
    }
}
