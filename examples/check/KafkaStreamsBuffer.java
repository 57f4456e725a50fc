import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;

/**
 * Wrong, also with exactly_once_v2: a processor keeps records in a list and forwards them each second. Offsets are
 * committed meanwhile, so a crash loses the list. It has to be a state store.
 */
public class KafkaStreamsBuffer {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("GROUP_ID"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BOOTSTRAP_SERVERS"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams").toString());
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), System.getenv("SESSION_TIMEOUT_MS"));
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "10000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(System.getenv("INPUT_TOPIC")).process(Buffer::new).to(System.getenv("OUTPUT_TOPIC"));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
    }

    private static class Buffer implements Processor<byte[], byte[], byte[], byte[]> {
        private final List<Record<byte[], byte[]>> waiting = new ArrayList<>();

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            context.schedule(Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, now -> {
                waiting.forEach(context::forward);
                waiting.clear();
            });
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            waiting.add(record);
        }
    }
}
