// Writes what cases.json says with Kafka's own producer, and prints the batches as they then lie in a broker's log,
// one line of JSON for each partition. A broker of this project never opens a batch on its way, so that log holds
// the producer's bytes, but for the base offset and the leader epoch.
//
//   java -cp "LIBS/*" WriteBatches.java BOOTSTRAP cases.json DIRECTORY_OF_A_BROKER > batches.jsonl
//
// Every topic has a replica on every broker, so any broker's directory will do.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class WriteBatches {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String suffix = "-" + System.currentTimeMillis();
        for (JsonNode each : JSON.readTree(new File(arguments[1]))) {
            String topic = "java-" + each.get("name").asText() + suffix;
            int partitions = each.get("partitions").asInt();
            create(bootstrap, topic, partitions);
            write(bootstrap, topic, each);
            for (int index = 0; index < partitions; index++) {
                Path log = Path.of(arguments[2], topic + "-" + index, "00000000000000000000.log");
                System.out.println(JSON.createObjectNode()
                    .put("name", each.get("name").asText())
                    .put("partition", index)
                    .put("log", Base64.getEncoder().encodeToString(Files.readAllBytes(log))));
            }
        }
    }

    private static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(properties(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 3))).all().get();
        }
    }

    private static void write(String bootstrap, String topic, JsonNode each) throws Exception {
        Properties settings = properties(bootstrap);
        settings.put("acks", "all");
        settings.put("linger.ms", "20000");
        settings.put("batch.size", each.get("batch_size").asText());
        settings.put("compression.type", each.get("compression").asText());
        settings.put("enable.idempotence", each.get("idempotent").asText());
        if (each.get("transactional").asBoolean()) {
            settings.put("transactional.id", topic);
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            if (each.get("transactional").asBoolean()) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : each.get("records")) {
                for (int count = 0; count < record.get("times").asInt(); count++) {
                    sent.add(producer.send(made(topic, record, count)));
                }
            }
            producer.flush();
            for (java.util.concurrent.Future<RecordMetadata> future : sent) {
                future.get();
            }
            if (each.get("transactional").asBoolean()) {
                producer.commitTransaction();
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> made(String topic, JsonNode record, int count) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), content(header.get(1))));
        }
        Integer partition = record.get("partition").isNull() ? null : record.get("partition").asInt();
        long timestamp = record.get("timestamp").asLong() + count;
        return new ProducerRecord<>(
            topic, partition, timestamp, content(record.get("key")), content(record.get("value")), headers);
    }

    /** Hexadecimal digits, or how many bytes of a pattern. */
    private static byte[] content(JsonNode told) {
        if (told.isNull()) {
            return null;
        }
        if (told.isTextual()) {
            return HexFormat.of().parseHex(told.asText());
        }
        byte[] pattern = new byte[told.asInt()];
        for (int index = 0; index < pattern.length; index++) {
            pattern[index] = (byte) (index * 31 % 251);
        }
        return pattern;
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }
}
