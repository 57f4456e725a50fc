package barnabas.cluster;

import java.util.LinkedHashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/**
 * Logins of nodes. Tests write them into the JAAS configuration of their own process, where Kafka's nodes would find them;
 * ours get them as settings of their listeners.
 */
final class Jaas {
    private static final String SECTION = "KafkaServer";

    private Jaas() { }

    /** Adds sasl.jaas.config of each mechanism of each listener, unless the test set it. */
    static void addTo(Map<String, String> settings) {
        for (String pair : settings.getOrDefault("listener.security.protocol.map", "").split(",")) {
            String[] listener = pair.strip().split(":");
            if (listener.length == 2 && listener[1].startsWith("SASL_")) addTo(settings, listener[0].toLowerCase(Locale.ROOT));
        }
    }

    private static void addTo(Map<String, String> settings, String listener) {
        for (String mechanism : mechanisms(settings, "listener.name." + listener + ".")) {
            String module = module(mechanism);
            for (AppConfigurationEntry entry : entries(listener))
                if (entry.getLoginModuleName().endsWith(module))
                    settings.putIfAbsent("listener.name." + listener + "." + mechanism.toLowerCase(Locale.ROOT) + ".sasl.jaas.config", text(entry));
        }
    }

    private static Set<String> mechanisms(Map<String, String> settings, String prefix) {
        String enabled = settings.getOrDefault(prefix + "sasl.enabled.mechanisms", settings.getOrDefault("sasl.enabled.mechanisms", "GSSAPI"));
        Set<String> found = new LinkedHashSet<>();
        for (String mechanism : enabled.split(",")) found.add(mechanism.strip());
        for (String key : new String[] {"sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol"})
            if (settings.containsKey(key)) found.add(settings.get(key));
        return found;
    }

    private static String module(String mechanism) {
        if (mechanism.startsWith("SCRAM-")) return ".ScramLoginModule";
        return switch (mechanism) {
            case "PLAIN" -> ".PlainLoginModule";
            case "OAUTHBEARER" -> ".OAuthBearerLoginModule";
            default -> ".Krb5LoginModule";
        };
    }

    private static AppConfigurationEntry[] entries(String listener) {
        Configuration all = Configuration.getConfiguration();
        AppConfigurationEntry[] own = all.getAppConfigurationEntry(listener + "." + SECTION);
        AppConfigurationEntry[] found = own != null ? own : all.getAppConfigurationEntry(SECTION);
        return found != null ? found : new AppConfigurationEntry[0];
    }

    private static String text(AppConfigurationEntry entry) {
        String options = entry.getOptions().entrySet().stream()
            .map(option -> " " + option.getKey() + "=\"" + option.getValue().toString().replace("\\", "\\\\").replace("\"", "\\\"") + "\"")
            .collect(Collectors.joining());
        return entry.getLoginModuleName() + " required" + options + ";";
    }
}
