package barnabas.cluster;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Settings that are in force, as a node reports them. */
final class Configs {
    private Configs() { }

    static Admin admin(Cluster cluster) {
        return Admin.create(Map.of("bootstrap.servers", "localhost:" + cluster.anyBroker().askedPort()));
    }

    static Config ofBroker(Cluster cluster, Node node) throws Exception {
        return of(cluster, new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(node.id)));
    }

    static Map<String, String> ofTopic(Cluster cluster, String topic) throws Exception {
        return values(of(cluster, new ConfigResource(ConfigResource.Type.TOPIC, topic)));
    }

    /** The settings of a group, if any were given to it. */
    static Optional<GroupConfig> ofGroup(Cluster cluster, String group) throws Exception {
        Config config = of(cluster, new ConfigResource(ConfigResource.Type.GROUP, group));
        boolean any = config.entries().stream().anyMatch(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG);
        return any ? Optional.of(new GroupConfig(values(config))) : Optional.empty();
    }

    /** The settings that a topic without its own has on this broker, by their names as a topic's settings. */
    static Map<String, String> topicDefaults(Cluster cluster, Node node) throws Exception {
        Map<String, String> broker = values(ofBroker(cluster, node));
        Map<String, String> topic = new HashMap<>();
        ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.forEach((key, synonym) -> {
            if (broker.containsKey(synonym)) topic.put(key, broker.get(synonym));
        });
        return topic;
    }

    private static Map<String, String> values(Config config) {
        Map<String, String> values = new HashMap<>();
        config.entries().forEach(entry -> {
            if (entry.value() != null) values.put(entry.name(), entry.value());
        });
        return values;
    }

    private static Config of(Cluster cluster, ConfigResource resource) throws Exception {
        try (Admin admin = admin(cluster)) {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource);
        }
    }
}
