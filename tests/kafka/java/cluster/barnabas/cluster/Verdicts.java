package barnabas.cluster;

import barnabas.runner.Plan;

import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.LifecycleMethodExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;

/** Skips, in every class, the tests of features that do not exist here and those that got no answer of a stand-in. */
public final class Verdicts
    implements ExecutionCondition, BeforeEachCallback, TestExecutionExceptionHandler, LifecycleMethodExecutionExceptionHandler {

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext test) {
        String className = test.getTestClass().map(Class::getSimpleName).orElse("");
        String name = className + test.getTestMethod().map(method -> "." + method.getName()).orElse("");
        return Plan.gapByName(name).map(ConditionEvaluationResult::disabled).orElse(ConditionEvaluationResult.enabled("no gap has its name"));
    }

    @Override
    public void beforeEach(ExtensionContext test) {
        Unanswered.forget();
    }

    @Override
    public void handleTestExecutionException(ExtensionContext test, Throwable failure) throws Throwable {
        throw Unanswered.judge(failure);
    }

    @Override
    public void handleBeforeEachMethodExecutionException(ExtensionContext test, Throwable failure) throws Throwable {
        throw Unanswered.judge(failure);
    }

    @Override
    public void handleAfterEachMethodExecutionException(ExtensionContext test, Throwable failure) throws Throwable {
        throw Unanswered.judge(failure);
    }
}
