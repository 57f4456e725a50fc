package org.apache.kafka.common.test.junit;

import barnabas.cluster.TestCluster;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;

import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import java.util.List;

/**
 * Has the name of the class by which Kafka's JUnit extension makes the cluster of a test, and comes first on the class
 * path. Tests that Kafka runs with nodes of both kinds and also with combined nodes run once, with nodes of both kinds.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String testName;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String testName, ClusterConfig config, boolean combined) {
        this.testName = testName;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int invocation) {
        return testName + " [" + invocation + "] " + String.join(",", config.tags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        TestCluster cluster = new TestCluster(config);
        return List.of((ExecutionCondition) test -> condition(cluster), new Lifecycle(cluster), new ClusterInstanceParameterResolver(cluster));
    }

    private ConditionEvaluationResult condition(TestCluster cluster) {
        if (combined && config.clusterTypes().contains(Type.KRAFT)) return ConditionEvaluationResult.disabled("COMBINED");
        return cluster.gap().map(ConditionEvaluationResult::disabled).orElse(ConditionEvaluationResult.enabled("can be had"));
    }

    private record Lifecycle(TestCluster cluster) implements BeforeEachCallback, AfterTestExecutionCallback {
        @Override
        public void beforeEach(ExtensionContext test) {
            cluster.setName(test.getRequiredTestClass().getSimpleName() + "." + test.getRequiredTestMethod().getName());
            if (config().isAutoStart()) cluster.start();
        }

        private ClusterConfig config() {
            return cluster.config();
        }

        @Override
        public void afterTestExecution(ExtensionContext test) {
            cluster.end(test.getExecutionException().isPresent());
        }
    }
}
