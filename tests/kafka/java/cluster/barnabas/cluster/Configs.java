package barnabas.cluster;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.common.config.ConfigResource;

import java.util.List;
import java.util.Map;

/** Settings that are in force, as a node reports them. */
final class Configs {
    private Configs() { }

    static Admin admin(Cluster cluster) {
        return Admin.create(Map.of("bootstrap.servers", "localhost:" + cluster.anyBroker().port()));
    }

    static Config ofBroker(Cluster cluster, Node node) throws Exception {
        return of(cluster, new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(node.id)));
    }

    static Config ofTopic(Cluster cluster, String topic) throws Exception {
        return of(cluster, new ConfigResource(ConfigResource.Type.TOPIC, topic));
    }

    private static Config of(Cluster cluster, ConfigResource resource) throws Exception {
        try (Admin admin = admin(cluster)) {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource);
        }
    }
}
