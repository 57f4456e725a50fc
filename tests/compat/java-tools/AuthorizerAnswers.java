import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/** Kafka's own authorizer answers questions from standard input; its audit log goes to standard output, too. */
public final class AuthorizerAnswers {
    private static StandardAuthorizer authorizer;
    private static long acls;

    public static void main(String[] arguments) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> begin(words[1]);
                case "acl" -> add(words);
                default -> out.println(answer(words));
            }
        }
    }

    private static void begin(String allowEveryone) {
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("allow.everyone.if.no.acl.found", allowEveryone, "super.users", "User:root"));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
    }

    /** acl, resource type, name, pattern type, principal, host, operation, permission type. */
    private static void add(String[] words) {
        acls++;
        authorizer.addAcl(new Uuid(1, acls), new StandardAcl(
            ResourceType.fromCode(Byte.parseByte(words[1])), words[2], PatternType.fromCode(Byte.parseByte(words[3])),
            words[4], words[5], AclOperation.fromCode(Byte.parseByte(words[6])),
            AclPermissionType.fromCode(Byte.parseByte(words[7]))));
    }

    /** ask or any, operation, resource type, name, user, host. */
    private static Object answer(String[] words) {
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(words[1]));
        ResourceType type = ResourceType.fromCode(Byte.parseByte(words[2]));
        var client = new Client(words[4], words[5]);
        if (words[0].equals("any")) {
            return authorizer.authorizeByResourceType(client, operation, type);
        }
        var resource = new ResourcePattern(type, words[3], PatternType.LITERAL);
        return authorizer.authorize(client, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private record Client(String user, String host) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public KafkaPrincipal principal() { return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user); }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "client"; }
        public int correlationId() { return 1; }
        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(host);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
