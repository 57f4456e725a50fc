package barnabas.cluster;

import kafka.server.KafkaConfig;

import com.fasterxml.jackson.databind.JsonNode;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/** A node of the cluster as its process was started. */
final class Node {
    final int id;
    final String role;
    final List<String> logDirs = new ArrayList<>();
    /** The file of tier_events.py. */
    final String tierEvents;
    private final Map<String, Integer> ports = new LinkedHashMap<>();
    private final Map<String, String> settings = new HashMap<>();
    private KafkaConfig config;
    private Map<String, String> dynamic = Map.of();
    private KafkaConfig changed;
    volatile boolean up;

    Node(JsonNode described) {
        id = described.get("id").asInt();
        role = described.get("role").asText();
        tierEvents = described.path("tier_events").asText();
        described.get("log_dirs").forEach(dir -> logDirs.add(dir.asText()));
        described.get("ports").fields().forEachRemaining(port -> ports.put(port.getKey(), port.getValue().asInt()));
        described.get("settings").fields().forEachRemaining(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
    }

    boolean isBroker() {
        return role.equals("broker");
    }

    /** The port of its first listener. */
    int port() {
        return ports.values().iterator().next();
    }

    /**
     * The port of a listener in plain text, for the questions of stand-ins: HARNESS (node.py), or else that of other brokers,
     * where nothing is hidden, or the first one.
     */
    Optional<Integer> plainPort() {
        String protocols = "," + settings.getOrDefault("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT").replace(" ", "") + ",";
        List<String> plain = ports.keySet().stream().filter(name -> protocols.contains("," + name + ":PLAINTEXT,")).toList();
        String between = settings.getOrDefault("inter.broker.listener.name", "");
        return Stream.concat(Stream.of("HARNESS", between), plain.stream()).filter(plain::contains).findFirst().map(ports::get);
    }

    int askedPort() {
        return plainPort().orElseThrow(() -> new IllegalStateException(role + " " + id + " has no listener in plain text"));
    }

    int port(String listener) {
        return Optional.ofNullable(ports.get(listener)).orElseThrow(() -> new IllegalArgumentException(role + " " + id + " has no listener " + listener));
    }

    String setting(String key) {
        return settings.get(key);
    }

    /** The settings in force: those of its file, and those that were changed while it runs. */
    synchronized KafkaConfig config() {
        if (config == null) config = new KafkaConfig(new HashMap<>(settings), false);
        if (!up || !isBroker()) return config;
        try {
            Map<String, String> now = Wire.dynamicSettings(askedPort(), id);
            if (!now.equals(dynamic)) {
                dynamic = now;
                Map<String, Object> all = new HashMap<>(config.originals());
                all.putAll(now);
                changed = new KafkaConfig(all, false);
            }
        } catch (IOException e) {
            // It is on its way up or down: what it said last is as good.
        }
        return dynamic.isEmpty() ? config : changed;
    }

    /** The Scala tests compare with the object that they made. */
    void setConfig(KafkaConfig made) {
        config = made;
    }

    Optional<File> replica(String topic, int partition) {
        return logDirs.stream().map(dir -> new File(dir, topic + "-" + partition)).filter(File::exists).findFirst();
    }
}
