import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.JwtValidatorException;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;

/** Judges the tokens of standard input, one a line, as a broker of Apache Kafka. Arguments: URL of the keys, audience, issuer. */
public class TokenJudge {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> values = new HashMap<>();
        values.put("sasl.oauthbearer.jwks.endpoint.url", arguments[0]);
        values.put("sasl.oauthbearer.expected.audience", arguments[1].isEmpty() ? List.of() : List.of(arguments[1]));
        values.put("sasl.oauthbearer.expected.issuer", arguments[2].isEmpty() ? null : arguments[2]);
        values.put("sasl.oauthbearer.clock.skew.seconds", 30);
        values.put("sasl.oauthbearer.scope.claim.name", "scope");
        values.put("sasl.oauthbearer.sub.claim.name", "sub");
        BrokerJwtValidator judge = new BrokerJwtValidator();
        judge.configure(values, "OAUTHBEARER", List.of(new AppConfigurationEntry(
            "Login", AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, Map.of())));
        BufferedReader tokens = new BufferedReader(new InputStreamReader(System.in));
        for (String token = tokens.readLine(); token != null; token = tokens.readLine()) {
            try {
                OAuthBearerToken accepted = judge.validate(token);
                System.out.println("accepted " + accepted.principalName() + " " + accepted.lifetimeMs());
            } catch (JwtValidatorException refused) {
                System.out.println("refused " + refused.getMessage().replaceAll("\\s+", " "));
            } catch (RuntimeException failed) {
                System.out.println("failed " + failed);
            }
        }
        judge.close();
    }
}
