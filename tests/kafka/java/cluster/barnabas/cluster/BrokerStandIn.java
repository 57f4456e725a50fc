package barnabas.cluster;

import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.HostedPartition;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.storage.internals.log.LogCleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A broker as tests look at it. */
final class BrokerStandIn {
    private static final long CHECKPOINT_MS = 30_000;

    private final Cluster cluster;
    private final Node node;
    private final RaftStandIn raft;
    private final Supplier<KRaftMetadataCache> metadata;
    private final Supplier<LogManager> logs = StandIn.lazy(this::logManager);
    private final Supplier<ReplicaManager> replicas = StandIn.lazy(this::replicaManager);
    private final Supplier<SocketServer> sockets = StandIn.lazy(this::socketServer);
    private final Supplier<SharedServer> shared = StandIn.lazy(this::sharedServer);
    private final Supplier<KafkaApis> apis = StandIn.lazy(this::apis);
    private final Supplier<GroupCoordinator> groups = StandIn.lazy(this::groupCoordinator);
    private final Supplier<Option<RemoteLogManager>> tier;
    private final Supplier<Metrics> metrics;
    private final Supplier<BrokerLifecycleManager> life = StandIn.lazy(this::lifecycle);

    BrokerStandIn(Cluster cluster, Node node) {
        this.cluster = cluster;
        this.node = node;
        raft = new RaftStandIn(cluster);
        metrics = StandIn.lazy(() -> new MetricsStandIn(node, () -> node).make());
        metadata = StandIn.lazy(() -> new MetadataStandIn(node).make());
        tier = StandIn.lazy(() -> {
            try {
                return TierStandIn.of(node);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        });
    }

    BrokerServer make() {
        return StandIn.of(BrokerServer.class)
            .on("config", a -> node.config())
            .give("clusterId", cluster.id)
            .on("boundPort", a -> node.port(((ListenerName) a[0]).value()))
            .on("isShutdown", a -> !node.up)
            .on("brokerState", a -> node.up ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN)
            .on("startup", a -> {
                cluster.start(List.of(node.id));
                return null;
            })
            .on("shutdown", a -> {
                if (node.up) cluster.stop(node.id);
                return null;
            })
            .give("awaitShutdown", null)
            .on("metadataCache", a -> metadata.get())
            .on("logManager", a -> logs.get())
            .on("replicaManager", a -> replicas.get())
            .on("socketServer", a -> sockets.get())
            .on("sharedServer", a -> shared.get())
            .on("dataPlaneRequestProcessor", a -> apis.get())
            .on("groupCoordinator", a -> groups.get())
            .on("lifecycleManager", a -> life.get())
            .on("raftManager", a -> raft.make())
            .on("metrics", a -> metrics.get())
            .on("remoteLogManagerOpt", a -> tier.get())
            .on("quotaManagers", a -> new QuotaStandIn(node).managers())
            .on("authorizerPlugin", a -> Option.apply(new MetadataLog(cluster).authorizer(node)))
            .on("tokenCache", a -> StandIn.of(DelegationTokenCache.class).on("tokens", b -> new MetadataLog(cluster).tokens()).make())
            .on("logDirFailureChannel", a -> StandIn.of(LogDirFailureChannel.class).on("maybeAddOfflineLogDir", b -> {
                breakDirectory((String) b[0]);
                return null;
            }).make())
            .make();
    }

    private Option<UnifiedLog> log(TopicPartition partition) {
        return node.replica(partition.topic(), partition.partition())
            .map(directory -> Option.apply(new LogStandIn(cluster, node, partition, directory).make())).orElse(Option.empty());
    }

    private UnifiedLog logOrThrow(TopicPartition partition) {
        Option<UnifiedLog> found = log(partition);
        if (found.isEmpty()) throw missing(partition);
        return found.get();
    }

    private RuntimeException missing(TopicPartition partition) {
        boolean broken = node.logDirs.stream().anyMatch(directory -> !new File(directory).isDirectory());
        String what = "broker " + node.id + " has no replica of " + partition;
        return broken ? new KafkaStorageException(what) : new NotLeaderOrFollowerException(what);
    }

    private LogManager logManager() {
        return StandIn.of(LogManager.class)
            .on("getLog", a -> log((TopicPartition) a[0]))
            .on("getOrCreateLog", a -> logOrThrow((TopicPartition) a[0]))
            .on("liveLogDirs", a -> CollectionConverters.asScala(node.logDirs.stream().map(File::new).toList()).toSeq())
            .on("isLogDirOnline", a -> isOnline((String) a[0]))
            .on("producerStateManagerConfig", a -> new ProducerStateManagerConfig(
                Integer.parseInt(Configs.ofBroker(cluster, node).get("producer.id.expiration.ms").value()),
                Boolean.parseBoolean(Configs.ofBroker(cluster, node).get("transaction.partition.verification.enable").value())))
            .on("initialDefaultConfig", a -> new LogConfig(Configs.topicDefaults(cluster, node)))
            .on("cleaner", a -> StandIn.of(LogCleaner.class).on("awaitCleaned", b -> awaitCleaned((TopicPartition) b[0], (Long) b[1], (Long) b[2])).make())
            .make();
    }

    private boolean awaitCleaned(TopicPartition partition, long offset, long patienceMs) {
        try {
            Eventually.is(patienceMs, partition + " is cleaned up to " + offset, () -> {
                Optional<File> directory = node.replica(partition.topic(), partition.partition());
                return directory.isPresent() && new LogFiles(directory.get()).checkpoint("cleaner-offset-checkpoint", partition) >= offset;
            });
            return true;
        } catch (AssertionError e) {
            return false;
        }
    }

    private ReplicaManager replicaManager() {
        return StandIn.of(ReplicaManager.class)
            .on("config", a -> node.config())
            .give("localBrokerId", node.id)
            .on("logManager", a -> logs.get())
            .on("metadataCache", a -> metadata.get())
            .on("localLog", a -> log((TopicPartition) a[0]))
            .on("getLog", a -> log((TopicPartition) a[0]))
            .on("localLogOrException", a -> logOrThrow((TopicPartition) a[0]))
            .on("getLogEndOffsetLag", a -> Math.max(logOrThrow((TopicPartition) a[0]).highWatermark() - (Long) a[1], 0))
            .on("checkpointHighWatermarks", a -> {
                awaitCheckpoints();
                return null;
            })
            .on("handleLogDirFailure", a -> {
                breakDirectory((String) a[0]);
                return null;
            })
            .on("onlinePartition", a -> PartitionStandIn.of(cluster, node, (TopicPartition) a[0]))
            .on("getPartition", a -> {
                Option<Partition> found = PartitionStandIn.of(cluster, node, (TopicPartition) a[0]);
                return found.isEmpty() ? new HostedPartition.None<Partition>() : new HostedPartition.Online<>(found.get());
            })
            .on("getPartitionOrException", a -> {
                Option<Partition> found = PartitionStandIn.of(cluster, node, (TopicPartition) a[0]);
                if (found.isEmpty()) throw missing((TopicPartition) a[0]);
                return found.get();
            })
            .make();
    }

    /** A node writes the checkpoint by itself every few seconds: waits until it says what leaders report. */
    private void awaitCheckpoints() {
        Eventually.is(CHECKPOINT_MS, "broker " + node.id + " has written its high watermarks", () -> {
            for (MetadataResponse.TopicMetadata topic : Wire.metadata(node.askedPort()).topicMetadata()) {
                for (MetadataResponse.PartitionMetadata partition : topic.partitionMetadata()) {
                    Optional<File> directory = node.replica(topic.topic(), partition.partition());
                    if (directory.isEmpty() || partition.leaderId.isEmpty()) continue;
                    long reported = Wire.offset(cluster.nodes.get(partition.leaderId.get()).askedPort(), partition.topicPartition, Wire.AS_CONSUMER, Wire.LATEST);
                    if (reported < 0) continue;
                    if (new LogFiles(directory.get()).checkpoint(LogStandIn.HIGH_WATERMARKS, partition.topicPartition) != reported) return false;
                }
            }
            return true;
        });
    }

    /** Puts a file where the directory was, and waits until the node has noticed. */
    private void breakDirectory(String directory) throws IOException {
        Path path = Path.of(directory);
        Files.move(path, path.resolveSibling(path.getFileName() + "-broken"));
        Files.createFile(path);
        Eventually.is(CHECKPOINT_MS, directory + " is offline", () -> !isOnline(directory));
    }

    private boolean isOnline(String directory) throws Exception {
        try (Admin admin = Configs.admin(cluster)) {
            return admin.describeLogDirs(List.of(node.id)).allDescriptions().get().get(node.id).get(directory).error() == null;
        }
    }

    private SocketServer socketServer() {
        return StandIn.of(SocketServer.class)
            .on("boundPort", a -> node.port(((ListenerName) a[0]).value()))
            .on("config", a -> node.config())
            .on("connectionQuotas", a -> new QuotaStandIn(node).connections())
            .on("connectionCount", a -> connectionCount())
            .make();
    }

    /** All come from this machine. */
    private int connectionCount() throws IOException {
        if (node.setting(Scrape.LISTENER) == null) throw Unanswered.because("INTERNALS: SocketServer.connectionCount()");
        return (int) new Scrape(node).samples("kafka_server_socketservermetrics_connection_count").get(0).value();
    }

    private SharedServer sharedServer() {
        MetadataLoader loader = StandIn.of(MetadataLoader.class)
            .on("lastAppliedOffset", a -> cluster.metadataEnds().getOrDefault(node.id, 0L) - 1).make();
        return StandIn.of(SharedServer.class).give("loader", loader).make();
    }

    private KafkaApis apis() {
        return StandIn.of(KafkaApis.class)
            .give("brokerId", node.id)
            .give("clusterId", cluster.id)
            .on("metadataCache", a -> metadata.get())
            .on("authorizerPlugin", a -> Option.apply(new MetadataLog(cluster).authorizer(node)))
            .on("quotas", a -> new QuotaStandIn(node).managers())
            .make();
    }

    private GroupCoordinator groupCoordinator() {
        return StandIn.of(GroupCoordinator.class)
            .on("groupConfig", a -> Configs.ofGroup(cluster, (String) a[0]))
            .on("groupMetadataTopicConfigs", a -> {
                // The settings that brokers give to __consumer_offsets when they make it.
                Properties settings = new Properties();
                settings.put("cleanup.policy", "compact");
                settings.put("compression.type", "producer");
                settings.put("segment.bytes", Configs.ofBroker(cluster, node).get("offsets.topic.segment.bytes").value());
                return settings;
            })
            .make();
    }

    private BrokerLifecycleManager lifecycle() {
        return StandIn.of(BrokerLifecycleManager.class)
            .on("brokerEpoch", a -> new MetadataLog(cluster).brokerEpoch(node.id))
            .give("initialUnfenceFuture", CompletableFuture.completedFuture(null))
            .give("initialCatchUpFuture", CompletableFuture.completedFuture(null))
            .make();
    }
}
