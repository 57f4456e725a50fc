import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A life of a client with nothing but the API of Kafka 2.1: it creates a topic, writes with idempotence, writes a
 * transaction that commits and one that does not, and reads in a group, twice. Arguments: BOOTSTRAP TOPIC REPLICAS. The
 * last line of its output has the values that the group read, sorted.
 */
public class OldClient {
    private static final int PARTITIONS = 4;
    private static final int IDEMPOTENT = 100;
    private static final int IN_A_TRANSACTION = 10;
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        try (AdminClient admin = AdminClient.create(settings)) {
            NewTopic topic = new NewTopic(args[1], PARTITIONS, Short.parseShort(args[2]));
            admin.createTopics(Collections.singleton(topic)).all().get();
        }
        settings.put("key.serializer", STRINGS + "Serializer");
        settings.put("value.serializer", STRINGS + "Serializer");
        settings.put("key.deserializer", STRINGS + "Deserializer");
        settings.put("value.deserializer", STRINGS + "Deserializer");
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            write(producer, args[1], "idempotent", IDEMPOTENT);
        }
        settings.put("transactional.id", args[1] + "-writer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            producer.beginTransaction();
            write(producer, args[1], "aborted", IN_A_TRANSACTION);
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            write(producer, args[1], "committed", IN_A_TRANSACTION);
            producer.commitTransaction();
        }
        settings.remove("transactional.id");
        settings.put("group.id", args[1] + "-readers");
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        // The second one goes on where the first has committed.
        TreeSet<String> values = new TreeSet<>(read(settings, args[1], IDEMPOTENT / 2));
        values.addAll(read(settings, args[1], IDEMPOTENT + IN_A_TRANSACTION - values.size()));
        System.out.println(String.join(" ", values));
    }

    private static void write(KafkaProducer<String, String> producer, String topic, String word, int count) {
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "key", word + "-" + i));
        }
    }

    /** At least `count` values, each once; their positions are committed. */
    private static TreeSet<String> read(Properties settings, String topic, int count) {
        TreeSet<String> values = new TreeSet<>();
        Properties few = new Properties();
        few.putAll(settings);
        few.put("max.poll.records", "20");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(few)) {
            consumer.subscribe(Collections.singleton(topic));
            while (values.size() < count) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    if (!values.add(record.value())) {
                        throw new IllegalStateException(record.value() + " was read twice");
                    }
                }
            }
            consumer.commitSync();
        }
        return values;
    }
}
