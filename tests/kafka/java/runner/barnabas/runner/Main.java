package barnabas.runner;

import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;

import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;

/** Runs the classes of the plan one after the other and prints each test that ended as a line of JSON. */
public final class Main {
    private Main() { }

    public static void main(String[] arguments) throws Exception {
        PrintStream events = System.out;
        System.setOut(new PrintStream(Files.newOutputStream(Path.of(Plan.out(), "stdout.txt"), CREATE, APPEND), true));
        try (LauncherSession session = LauncherFactory.openSession()) {
            for (String name : Plan.classes())
                session.getLauncher().execute(request(name), new Events(events));
        }
        // Threads that a test left behind must not keep this process.
        System.exit(0);
    }

    private static LauncherDiscoveryRequest request(String className) {
        return LauncherDiscoveryRequestBuilder.request()
            .selectors(DiscoverySelectors.selectClass(className))
            .filters((PostDiscoveryFilter) Main::isWanted)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.default", "150 s")
            .build();
    }

    private static FilterResult isWanted(TestDescriptor test) {
        return FilterResult.includedIf(test.getSource().filter(MethodSource.class::isInstance).map(MethodSource.class::cast)
            .map(source -> Plan.methods().matcher(Events.name(source)).find()).orElse(true));
    }
}
