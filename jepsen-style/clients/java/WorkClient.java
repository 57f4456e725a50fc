import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client behind two pipes: a line of JSON comes in for each call, and one goes out when it has ended.
 *
 * <p>{"call": NAME, ...} is answered by {"ok": VALUE} or {"error": NAME, "text": TEXT, "sent": BOOLEAN}, each with what
 * rebalances there were; before all calls come the settings, as one line, and are answered as well. "sent": false means that nothing of it ever left this process. The end of the input is the end
 * of the process; nothing is closed then, whoever wants that says so.
 */
public final class WorkClient implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode settings;
    private final Duration patience;
    private Admin admin;
    private KafkaProducer<byte[], byte[]> producer;
    private KafkaConsumer<byte[], byte[]> consumer;
    private boolean subscribed;
    private ArrayNode rebalances = JSON.createArrayNode();

    private WorkClient(JsonNode settings) {
        this.settings = settings;
        this.patience = Duration.ofMillis(settings.get("patience_ms").asLong());
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        WorkClient client = new WorkClient(JSON.readTree(in.readLine()));
        client.admin();
        client.producer();
        client.consumer();
        if (arguments.length > 0) {
            // Only to load the classes, for an archive of them that is written at the exit.
            System.exit(0);
        }
        out.println("{\"ok\": null, \"rebalances\": []}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(client.answer(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private ObjectNode answer(JsonNode call) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("ok", JSON.valueToTree(perform(call.get("call").asText(), call)));
        } catch (NeverSent error) {
            tell(answer, error.getCause()).put("sent", false);
        } catch (ExecutionException error) {
            tell(answer, error.getCause());
        } catch (Exception error) {
            tell(answer, error);
        }
        answer.set("rebalances", rebalances);
        rebalances = JSON.createArrayNode();
        return answer;
    }

    private static ObjectNode tell(ObjectNode answer, Throwable error) {
        Throwable cause = error;
        // What a transaction failed with is wrapped once more.
        while (cause.getClass() == org.apache.kafka.common.KafkaException.class && cause.getCause() != null) {
            cause = cause.getCause();
        }
        answer.put("error", cause.getClass().getSimpleName());
        return answer.put("text", String.valueOf(cause.getMessage())).put("sent", true);
    }

    private Object perform(String name, JsonNode call) throws Exception {
        switch (name) {
            case "create_topic": {
                short replicas = (short) call.get("replicas").asInt();
                NewTopic topic = new NewTopic(text(call, "name"), call.get("partitions").asInt(), replicas);
                Map<String, String> wanted = new HashMap<>();
                call.get("configs").properties().forEach(each -> wanted.put(each.getKey(), each.getValue().asText()));
                topic.configs(wanted);
                return change(admin().createTopics(List.of(topic)).all());
            }
            case "delete_topic":
                return change(admin().deleteTopics(List.of(text(call, "name"))).all());
            case "create_partitions":
                return change(admin().createPartitions(
                    Map.of(text(call, "name"), NewPartitions.increaseTo(call.get("total").asInt()))).all());
            case "list_topics": {
                Map<String, Integer> found = new TreeMap<>();
                Set<String> names = await(admin().listTopics().names());
                for (var each : admin().describeTopics(names).topicNameValues().entrySet()) {
                    found.put(each.getKey(), await(each.getValue()).partitions().size());
                }
                return found;
            }
            case "alter_config": {
                ConfigEntry entry = new ConfigEntry(text(call, "key"), text(call, "value"));
                AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                return change(admin().incrementalAlterConfigs(Map.of(topic(call), List.of(set))).all());
            }
            case "describe_config": {
                ConfigResource topic = topic(call);
                var configs = await(admin().describeConfigs(List.of(topic)).all());
                ConfigEntry found = configs.get(topic).get(text(call, "key"));
                return found == null || found.value() == null ? "" : found.value();
            }
            case "send":
                return send(call);
            case "init_transactions":
                producer().initTransactions();
                return null;
            case "begin":
                producer().beginTransaction();
                return null;
            case "send_offsets":
                producer().sendOffsetsToTransaction(offsets(call.get("offsets")), consumer().groupMetadata());
                return null;
            case "commit_transaction":
                producer().commitTransaction();
                return null;
            case "abort_transaction":
                producer().abortTransaction();
                return null;
            case "assign": {
                if (subscribed) {
                    consumer().unsubscribe();
                    subscribed = false;
                }
                List<TopicPartition> places = places(call.get("places"));
                consumer().assign(places);
                if (call.get("from_beginning").asBoolean() && !places.isEmpty()) {
                    consumer().seekToBeginning(places);
                }
                return null;
            }
            case "subscribe": {
                List<String> topics = new ArrayList<>();
                call.get("topics").forEach(each -> topics.add(each.asText()));
                if (!subscribed) {
                    consumer().unsubscribe();
                }
                consumer().subscribe(topics, this);
                subscribed = true;
                return null;
            }
            case "seek":
                consumer().seek(place(call.get("place")), call.get("offset").asLong());
                return null;
            case "poll":
                return poll(call.get("timeout_ms").asLong());
            case "position":
                return consumer().position(place(call.get("place")), patience);
            case "commit_offsets": {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (TopicPartition each : consumer().assignment()) {
                    positions.put(each, new OffsetAndMetadata(consumer().position(each, patience)));
                }
                consumer().commitSync(positions, patience);
                return told(positions);
            }
            case "committed":
                return told(consumer().committed(new HashSet<>(places(call.get("places"))), patience));
            case "end_offsets": {
                Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
                consumer().endOffsets(places(call.get("places")), patience)
                    .forEach((place, offset) -> found.put(place, new OffsetAndMetadata(offset)));
                return told(found);
            }
            case "assignment": {
                List<List<Object>> found = new ArrayList<>();
                consumer().assignment().forEach(each -> found.add(List.of(each.topic(), each.partition())));
                return found;
            }
            case "close":
                if (producer != null) {
                    producer.close(Duration.ofSeconds(2));
                }
                if (consumer != null) {
                    consumer.close(CloseOptions.timeout(Duration.ofSeconds(2)));
                }
                return null;
            default:
                throw new IllegalArgumentException("there is no call " + name);
        }
    }

    private Object send(JsonNode call) throws Exception {
        JsonNode key = call.get("key");
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
            text(call, "topic"), call.get("partition").asInt(),
            key.isNull() ? null : Base64.getDecoder().decode(key.asText()),
            Base64.getDecoder().decode(text(call, "value")));
        Future<RecordMetadata> future;
        try {
            future = producer().send(record);
        } catch (Exception error) {
            throw new NeverSent(error);
        }
        if (future.getClass().getSimpleName().equals("FutureFailure")) {
            // The producer did not take it on: no metadata, no memory, too large.
            try {
                future.get();
            } catch (ExecutionException error) {
                throw new NeverSent(error.getCause());
            }
        }
        RecordMetadata sent = future.get();
        Map<String, Object> told = new HashMap<>();
        told.put("offset", sent.hasOffset() ? sent.offset() : null);
        told.put("timestamp_ms", sent.timestamp());
        return told;
    }

    private Object poll(long timeoutMs) {
        List<List<Object>> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : consumer().poll(Duration.ofMillis(timeoutMs))) {
            List<Object> record = new ArrayList<>();
            record.add(each.topic());
            record.add(each.partition());
            record.add(each.offset());
            record.add(each.key() == null ? null : Base64.getEncoder().encodeToString(each.key()));
            record.add(Base64.getEncoder().encodeToString(each.value() == null ? new byte[0] : each.value()));
            record.add(each.timestamp());
            record.add(each.leaderEpoch().orElse(-1));
            found.add(record);
        }
        return found;
    }

    // ---- rebalances

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        rebalanced("assigned", places);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        rebalanced("revoked", places);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        rebalanced("lost", places);
    }

    private void rebalanced(String kind, Collection<TopicPartition> places) {
        ObjectNode told = rebalances.addObject().put("kind", kind);
        told.put("generation", consumer.groupMetadata().generationId());
        ArrayNode listed = told.putArray("places");
        places.forEach(each -> listed.addArray().add(each.topic()).add(each.partition()));
    }

    // ---- what it is made of, when it is needed first

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(properties("admin"));
        }
        return admin;
    }

    private KafkaProducer<byte[], byte[]> producer() {
        if (producer == null) {
            ByteArraySerializer bytes = new ByteArraySerializer();
            producer = new KafkaProducer<>(properties("producer"), bytes, bytes);
        }
        return producer;
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        if (consumer == null) {
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            consumer = new KafkaConsumer<>(properties("consumer"), bytes, bytes);
        }
        return consumer;
    }

    private Properties properties(String of) {
        Properties properties = new Properties();
        settings.get(of).properties().forEach(each -> properties.setProperty(each.getKey(), each.getValue().asText()));
        return properties;
    }

    // ---- values

    private <T> T await(KafkaFuture<T> future) throws Exception {
        return future.get(patience.toMillis() * 2, TimeUnit.MILLISECONDS);
    }

    private Object change(KafkaFuture<Void> future) throws Exception {
        await(future);
        return null;
    }

    private static String text(JsonNode call, String name) {
        return call.get(name).asText();
    }

    private static ConfigResource topic(JsonNode call) {
        return new ConfigResource(ConfigResource.Type.TOPIC, text(call, "topic"));
    }

    private static TopicPartition place(JsonNode place) {
        return new TopicPartition(place.get(0).asText(), place.get(1).asInt());
    }

    private static List<TopicPartition> places(JsonNode places) {
        List<TopicPartition> found = new ArrayList<>();
        places.forEach(each -> found.add(place(each)));
        return found;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode offsets) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        offsets.forEach(each -> found.put(place(each), new OffsetAndMetadata(each.get(2).asLong())));
        return found;
    }

    private static List<List<Object>> told(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<List<Object>> found = new ArrayList<>();
        offsets.forEach((place, offset) -> Optional.ofNullable(offset).ifPresent(
            each -> found.add(List.of(place.topic(), place.partition(), each.offset()))));
        return found;
    }

    /** Of a record that the producer did not take on. */
    private static final class NeverSent extends Exception {
        private static final long serialVersionUID = 1L;

        NeverSent(Throwable cause) {
            super(cause);
        }
    }
}
