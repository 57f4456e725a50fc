package barnabas.cluster;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The metrics of a node, from its page /metrics. */
final class Scrape {
    static final String LISTENER = "barnabas.http.listener";
    /** Tests ask in tight loops. */
    private static final long FRESH_NANOS = 50_000_000;
    private static final Pattern SAMPLE = Pattern.compile("(\\w+)(?:\\{(.*)\\})? (\\S+)");
    private static final Pattern LABEL = Pattern.compile("(\\w+)=\"((?:[^\"\\\\]|\\\\.)*)\"");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    record Sample(Map<String, String> labels, double value) { }

    private final Node node;
    private Map<String, List<Sample>> families = Map.of();
    private long scraped = System.nanoTime() - 2 * FRESH_NANOS;

    Scrape(Node node) {
        this.node = node;
    }

    /** The next samples are those of now. */
    synchronized void refresh() {
        scraped = System.nanoTime() - 2 * FRESH_NANOS;
    }

    synchronized List<Sample> samples(String family) throws IOException {
        if (System.nanoTime() - scraped > FRESH_NANOS) {
            families = parsed(page());
            scraped = System.nanoTime();
        }
        return families.getOrDefault(family, List.of());
    }

    private String page() throws IOException {
        URI address = URI.create("http://" + node.setting(LISTENER) + "/metrics");
        try {
            return HTTP.send(HttpRequest.newBuilder(address).build(), HttpResponse.BodyHandlers.ofString()).body();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException(e);
        }
    }

    private static Map<String, List<Sample>> parsed(String page) {
        Map<String, List<Sample>> families = new HashMap<>();
        for (String line : page.split("\n")) {
            Matcher sample = SAMPLE.matcher(line);
            if (!sample.matches()) continue;
            Map<String, String> labels = new HashMap<>();
            Matcher label = LABEL.matcher(sample.group(2) == null ? "" : sample.group(2));
            while (label.find()) labels.put(label.group(1), label.group(2).replace("\\\"", "\"").replace("\\\\", "\\"));
            double value = switch (sample.group(3)) {
                case "+Inf" -> Double.POSITIVE_INFINITY;
                case "-Inf" -> Double.NEGATIVE_INFINITY;
                default -> Double.parseDouble(sample.group(3));
            };
            families.computeIfAbsent(sample.group(1), name -> new ArrayList<>()).add(new Sample(labels, value));
        }
        return families;
    }
}
