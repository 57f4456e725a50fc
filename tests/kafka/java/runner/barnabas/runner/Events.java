package barnabas.runner;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** Prints what came of each test: passed, failed, or skipped, with the reason. */
final class Events implements TestExecutionListener {
    private final ObjectMapper json = new ObjectMapper();
    private final Map<String, Long> began = new HashMap<>();
    private final PrintStream out;

    Events(PrintStream out) {
        this.out = out;
    }

    static String name(MethodSource source) {
        return simple(source.getClassName()) + "." + source.getMethodName();
    }

    private static String simple(String className) {
        return className.substring(className.lastIndexOf('.') + 1);
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        began.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        print(test, "skipped", reason, null);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        Throwable failure = result.getThrowable().orElse(null);
        switch (result.getStatus()) {
            case SUCCESSFUL -> {
                if (test.isTest()) print(test, "passed", "", null);
            }
            case ABORTED -> print(test, "skipped", failure == null ? "aborted" : failure.getMessage(), null);
            case FAILED -> print(test, "failed", String.valueOf(failure), failure);
        }
    }

    private void print(TestIdentifier test, String outcome, String reason, Throwable failure) {
        long now = System.nanoTime();
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("outcome", outcome);
        event.put("test", nameOf(test));
        event.put("invocation", test.isTest() ? test.getDisplayName() : "");
        event.put("seconds", (now - began.getOrDefault(test.getUniqueId(), now)) / 1e9);
        event.put("reason", String.valueOf(reason));
        event.put("trace", failure == null ? "" : trace(failure));
        try {
            out.println(json.writeValueAsString(event));
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
        out.flush();
    }

    private static String nameOf(TestIdentifier test) {
        var source = test.getSource().orElse(null);
        if (source instanceof MethodSource method) return name(method);
        return source instanceof ClassSource type ? simple(type.getClassName()) : test.getDisplayName();
    }

    private static String trace(Throwable failure) {
        StringWriter text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
