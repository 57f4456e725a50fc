import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts and sums the orders of each product with group.protocol=streams and exactly_once_v2. Orders are "PRODUCT AMOUNT"
 * by customer, so they go through a repartition topic. Every order gives one record "COUNT SUM" by product.
 *
 * <p>Arguments: BOOTSTRAP INPUT OUTPUT APPLICATION STATE_DIRECTORY REPLICATION_FACTOR. Says "began" when it runs, and
 * leaves the group on SIGTERM.
 */
public class OrderTotals {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[3]);
        settings.put("state.dir", args[4]);
        settings.put("client.id", Path.of(args[4]).getFileName().toString());
        settings.put("replication.factor", args[5]);
        settings.put("group.protocol", "streams");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("num.stream.threads", "1");
        settings.put("main.consumer.auto.offset.reset", "earliest");
        settings.put("producer.transaction.timeout.ms", "5000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((customer, order) -> order.split(" ")[0])
                .repartition(Repartitioned.<String, String>as("by-product")
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.String()))
                .groupByKey()
                .aggregate(
                        () -> "0 0",
                        (product, order, total) -> add(total, Long.parseLong(order.split(" ")[1])),
                        Materialized.<String, String>as(Stores.inMemoryKeyValueStore("totals"))
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.String()))
                .toStream()
                .to(args[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("began");
                System.out.flush();
            } else if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(
                CloseOptions.timeout(Duration.ofSeconds(20))
                        .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP))));
        streams.start();
    }

    private static String add(String total, long amount) {
        String[] parts = total.split(" ");
        return (Long.parseLong(parts[0]) + 1) + " " + (Long.parseLong(parts[1]) + amount);
    }
}
