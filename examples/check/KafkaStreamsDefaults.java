import java.nio.file.Files;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Wrong for exactly-once: processing.guarantee is at_least_once by default. What was written since the last commit, of
 * which there is one in 30 seconds, is written again after a crash, and records of aborted transactions are read.
 */
public class KafkaStreamsDefaults {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("GROUP_ID"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BOOTSTRAP_SERVERS"));
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams").toString());
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), System.getenv("SESSION_TIMEOUT_MS"));

        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(System.getenv("INPUT_TOPIC")).to(System.getenv("OUTPUT_TOPIC"));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
    }
}
