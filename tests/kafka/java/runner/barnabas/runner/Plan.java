package barnabas.runner;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;

/** What one run does: the file that the system property barnabas.plan names. */
public final class Plan {
    private static final JsonNode FILE = read();

    /** A kind of test that does not run: by its name, or by a setting (key=value) of the cluster that it asks for. */
    private record Gap(String by, Pattern pattern, String reason) { }

    private static final List<Gap> GAPS = new ArrayList<>();

    static {
        for (JsonNode gap : FILE.get("gaps"))
            GAPS.add(new Gap(gap.get("by").asText(), Pattern.compile(gap.get("pattern").asText()), gap.get("reason").asText()));
    }

    private Plan() { }

    private static JsonNode read() {
        try {
            return new ObjectMapper().readTree(Path.of(System.getProperty("barnabas.plan")).toFile());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static List<String> classes() {
        return strings(FILE.get("classes"));
    }

    /** Matched with Class.method. */
    static Pattern methods() {
        return Pattern.compile(FILE.get("methods").asText());
    }

    public static List<String> nodeServer() {
        return strings(FILE.get("node_server"));
    }

    public static String checkout() {
        return FILE.get("checkout").asText();
    }

    public static String out() {
        return FILE.get("out").asText();
    }

    /** Why a test of this name (Class.method) does not run. */
    public static Optional<String> gapByName(String name) {
        return GAPS.stream().filter(gap -> gap.by.equals("name") && gap.pattern.matcher(name).find()).map(Gap::reason).findFirst();
    }

    /** Why no cluster with this setting can be had. */
    public static Optional<String> gapBySetting(String key, Object value) {
        String setting = key + "=" + value;
        return GAPS.stream().filter(gap -> gap.by.equals("setting") && gap.pattern.matcher(setting).matches())
            .map(gap -> gap.reason + " (" + key + ")").findFirst();
    }

    private static List<String> strings(JsonNode array) {
        List<String> strings = new ArrayList<>();
        array.forEach(each -> strings.add(each.asText()));
        return strings;
    }
}
