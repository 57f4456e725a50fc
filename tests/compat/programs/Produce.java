import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Writes records to partition 0. Arguments: TOPIC, then settings as NAME=VALUE. Each line of its input is one record:
 * timestamp, key, value, then name and value of each header, with blanks between; all but timestamps and names in hex
 * with a leading x, null as -. With a transactional.id all of it is one transaction.
 */
public class Produce {
    public static void main(String[] args) throws IOException {
        Properties settings = new Properties();
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        for (int i = 1; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            settings.put(args[i].substring(0, equals), args[i].substring(equals + 1));
        }
        boolean transactional = settings.containsKey("transactional.id");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.partitionsFor(args[0]);
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    args[0], 0, Long.parseLong(words[0]), bytes(words[1]), bytes(words[2]));
                for (int i = 3; i < words.length; i += 2) {
                    record.headers().add(words[i], bytes(words[i + 1]));
                }
                producer.send(record);
            }
            if (transactional) {
                producer.commitTransaction();
            }
        }
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? null : HexFormat.of().parseHex(word.substring(1));
    }
}
