package barnabas.cluster;

import kafka.api.BaseQuotaTest;
import kafka.api.EndToEndAuthorizationTest;
import kafka.network.DynamicConnectionQuotaTest;
import kafka.server.ControllerMutationQuotaTest;
import kafka.server.KRaftQuorumImplementation;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import kafka.server.ReplicationQuotasTest;
import kafka.server.RequestQuotaTest;
import kafka.utils.TestInfoUtils;

import barnabas.runner.Plan;

import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;

import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.Feature;

import org.junit.jupiter.api.TestInfo;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

import java.io.File;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.takesArguments;

/**
 * Gives nodes of ours to the tests in Scala, which derive from QuorumTestHarness: Byte Buddy replaces the body of its
 * newKRaftQuorum, which would start a controller in this process.
 */
public final class ScalaClusters implements LauncherSessionListener {
    @Override
    public void launcherSessionOpened(LauncherSession session) {
        new AgentBuilder.Default().disableClassFormatChanges()
            .type(named("kafka.server.QuorumTestHarness"))
            .transform((builder, type, loader, module, domain) ->
                builder.visit(Advice.to(NewQuorum.class).on(named("newKRaftQuorum").and(takesArguments(2)))))
            .type(namedOneOf("kafka.server.ControllerMutationQuotaTest$", "kafka.server.RequestQuotaTest$"))
            .transform((builder, type, loader, module, domain) ->
                builder.visit(Advice.to(SaidPrincipal.class).on(named("principal_$eq"))))
            .installOn(ByteBuddyAgent.install());
    }

    /** Byte Buddy copies these two bodies into newKRaftQuorum(TestInfo, Properties). */
    public static final class NewQuorum {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        public static Object enter(@Advice.This Object harness, @Advice.Argument(0) TestInfo test, @Advice.Argument(1) Properties overriding) {
            return Quorum.of((QuorumTestHarness) harness, test, overriding);
        }

        @Advice.OnMethodExit
        public static void exit(@Advice.Enter Object quorum, @Advice.Return(readOnly = false) KRaftQuorumImplementation returned) {
            returned = (KRaftQuorumImplementation) quorum;
        }
    }

    /** Tests set the principal that their principal builder returns from now on. */
    public static final class SaidPrincipal {
        @Advice.OnMethodExit
        public static void exit(@Advice.Argument(0) Object principal) {
            Quorum.say(principal);
        }
    }

    /** A controller of ours, and brokers as the test makes them. */
    public static final class Quorum extends KRaftQuorumImplementation {
        private static final String CONTROLLER = "1000";

        private final Cluster cluster;
        private final boolean servesMetrics;

        private Quorum(Cluster cluster, QuorumTestHarness harness) {
            super(new ControllerStandIn(cluster, cluster.ofRole("controller").get(0)).make(), harness.faultHandlerFactory(),
                null, null, cluster.id, harness, harness.faultHandler());
            this.cluster = cluster;
            servesMetrics = looksAtMetrics(harness);
        }

        public static Quorum of(QuorumTestHarness harness, TestInfo test, Properties overriding) {
            Map<String, String> settings = new HashMap<>();
            for (Properties each : CollectionConverters.asJava(harness.kraftControllerConfigs(test))) copy(each, settings);
            copy(overriding, settings);
            settings.forEach(Quorum::refuseGap);
            int id = Integer.parseInt(settings.getOrDefault("node.id", CONTROLLER));
            List<String> listeners = new ArrayList<>(List.of("CONTROLLER"));
            List<String> protocols = new ArrayList<>(List.of("CONTROLLER:" + harness.controllerListenerSecurityProtocol()));
            CollectionConverters.asJava(harness.extraControllerSecurityProtocols()).forEach(each -> {
                listeners.add(each.name);
                protocols.add(each.name + ":" + each.name);
            });
            settings.put("listeners", listeners.stream().map(each -> each + "://localhost:0").collect(Collectors.joining(",")));
            settings.put("listener.security.protocol.map", String.join(",", protocols));
            settings.put("controller.listener.names", String.join(",", listeners));
            settings.put("log.segment.delete.delay.ms", "1000");
            if (harness instanceof ControllerMutationQuotaTest) settings.put(Scrape.LISTENER, "127.0.0.1:0");
            Map<Feature, Short> features = Map.of(Feature.TRANSACTION_VERSION, (short) (TestInfoUtils.isTransactionV2Enabled(test) ? 2 : 1));
            String name = test.getTestClass().orElseThrow().getSimpleName() + "." + test.getTestMethod().orElseThrow().getName();
            Jaas.addTo(settings);
            Cluster cluster = new Cluster(name, Cluster.levels(harness.metadataVersion(), features), users(harness),
                List.of(Map.of("id", id, "role", "controller", "settings", settings)));
            cluster.start(List.of(id));
            try {
                if (looksAtMetrics(harness)) MetricsStandIn.register(cluster);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
            return new Quorum(cluster, harness);
        }

        public static void say(Object principal) {
            NodeServer.ask(Map.of("do", "say", "principal", principal.toString()));
        }

        /** Others compare the settings of their brokers with Kafka's, which do not have this page. */
        private static boolean looksAtMetrics(QuorumTestHarness harness) {
            return harness instanceof BaseQuotaTest || harness instanceof EndToEndAuthorizationTest || harness instanceof RequestQuotaTest
                || harness instanceof ControllerMutationQuotaTest || harness instanceof DynamicConnectionQuotaTest
                || harness instanceof ReplicationQuotasTest;
        }

        /** The users that the test asks Kafka's formatter to add. */
        private static List<String> users(QuorumTestHarness harness) {
            Formatter formatter = new Formatter();
            harness.addFormatterSettings(formatter);
            try {
                Field arguments = Formatter.class.getDeclaredField("scramArguments");
                arguments.setAccessible(true);
                return ((List<?>) arguments.get(formatter)).stream().map(String.class::cast).toList();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }

        private static void copy(Map<?, ?> from, Map<String, String> to) {
            from.forEach((key, value) -> {
                if (value != null) to.put(key.toString(), text(value));
            });
        }

        /** A value as a file of settings has it. */
        private static String text(Object value) {
            if (value instanceof Password password) return password.value();
            if (value instanceof List<?> list) return String.join(",", list.stream().map(Quorum::text).toList());
            if (value instanceof Class<?> type) return type.getName();
            return value.toString();
        }

        private static void refuseGap(String key, Object value) {
            Plan.gapBySetting(key, value).ifPresent(reason -> {
                throw Unanswered.because(reason);
            });
        }

        @Override
        public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
            Map<String, String> settings = new HashMap<>();
            copy(config.originals(), settings);
            settings.forEach(Quorum::refuseGap);
            Jaas.addTo(settings);
            if (servesMetrics) settings.put(Scrape.LISTENER, "127.0.0.1:0");
            List<String> dirs = config.logDirs().stream().map(dir -> new File(dir).getAbsolutePath()).toList();
            Node node = cluster.add(Map.of("id", config.nodeId(), "role", "broker", "settings", settings, "log_dirs", dirs));
            node.setConfig(config);
            KafkaBroker broker = new BrokerStandIn(cluster, node).make();
            if (startup) broker.startup();
            return broker;
        }

        @Override
        public void shutdown() {
            List<String> lost = cluster.drop(true);
            if (!lost.isEmpty()) throw new AssertionError(String.join("; ", lost));
        }
    }
}
