package barnabas.cluster;

import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.metadata.BrokerRegistrationReply;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

import scala.Option;

/** A controller as tests look at it. */
final class ControllerStandIn {
    private final Cluster cluster;
    private final Node node;
    private final Supplier<SocketServer> sockets = StandIn.lazy(this::socketServer);
    private final Supplier<KafkaRaftManager<?>> raft;
    private final Supplier<Metrics> metrics;
    private final Supplier<Controller> controller = StandIn.lazy(this::controller);

    ControllerStandIn(Cluster cluster, Node node) {
        this.cluster = cluster;
        this.node = node;
        raft = StandIn.lazy(() -> new RaftStandIn(cluster).make());
        metrics = StandIn.lazy(() -> new MetricsStandIn(node, cluster::anyBroker).make());
    }

    ControllerServer make() {
        return StandIn.of(ControllerServer.class)
            .on("config", a -> node.config())
            .give("clusterId", cluster.id)
            .on("socketServer", a -> sockets.get())
            .on("raftManager", a -> raft.get())
            .on("controller", a -> controller.get())
            .on("quotaManagers", a -> new QuotaStandIn(cluster.anyBroker()).managers())
            .on("metrics", a -> metrics.get())
            .on("authorizerPlugin", a -> Option.apply(new MetadataLog(cluster).authorizer(node)))
            .make();
    }

    private SocketServer socketServer() {
        return StandIn.of(SocketServer.class)
            .on("boundPort", a -> node.port(((ListenerName) a[0]).value()))
            .on("config", a -> node.config())
            .make();
    }

    private Controller controller() {
        return StandIn.of(Controller.class)
            .on("isActive", a -> Wire.quorum(cluster.anyBroker().askedPort()).leaderId() == node.id)
            .on("findAllTopicIds", a -> CompletableFuture.completedFuture(topicIds()))
            .on("findTopicIds", a -> {
                Map<String, Uuid> known = topicIds();
                Map<String, ResultOrError<Uuid>> found = new HashMap<>();
                for (Object name : (Collection<?>) a[1])
                    found.put((String) name, known.containsKey(name) ? ResultOrError.of(known.get(name))
                        : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, null));
                return CompletableFuture.completedFuture(found);
            })
            .on("registerBroker", a -> CompletableFuture.completedFuture(
                new BrokerRegistrationReply(Wire.registerBroker(node.askedPort(), (BrokerRegistrationRequestData) a[1]))))
            .on("incrementalAlterConfigs", a -> CompletableFuture.completedFuture(
                Wire.alterConfigs(node.askedPort(), (Map<?, ?>) a[1])))
            .make();
    }

    private Map<String, Uuid> topicIds() throws IOException {
        Map<String, Uuid> ids = new HashMap<>();
        Wire.metadata(cluster.anyBroker().askedPort()).topicMetadata().forEach(topic -> ids.put(topic.topic(), topic.topicId()));
        return ids;
    }
}
