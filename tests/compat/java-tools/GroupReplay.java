import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Loads records of __consumer_offsets into Kafka's own group coordinator. Standard input has one record a line, the key and
 * the value in hexadecimal digits (- for a tombstone), and an empty line after each batch. For each batch the log up to its
 * end is loaded into a new coordinator, and a line says which kind and state the group of argument 0 has, and its members.
 */
public class GroupReplay {
    private static final GroupCoordinatorConfig CONFIG = GroupCoordinatorConfig.fromProps(Map.of());
    private static final ShareGroupConfig SHARES = ShareGroupConfig.fromProps(Map.of());

    public static void main(String[] arguments) throws Exception {
        List<String[]> log = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isEmpty()) {
                System.out.println("batch\t" + loaded(log, arguments[0]));
            } else {
                log.add(line.split(" "));
            }
        }
    }

    private static String loaded(List<String[]> log, String groupId) {
        GroupCoordinatorShard shard = newShard();
        GroupCoordinatorRecordSerde format = new GroupCoordinatorRecordSerde();
        try {
            long offset = 0;
            for (String[] record : log) {
                CoordinatorRecord read = format.deserialize(bytes(record[0]), record[1].equals("-") ? null : bytes(record[1]));
                shard.replay(offset++, -1L, (short) -1, read);
            }
            shard.onLoaded(CoordinatorMetadataImage.EMPTY);
            return described(shard, groupId);
        } catch (RuntimeException failed) {
            return "failed\t" + failed;
        }
    }

    private static String described(GroupCoordinatorShard shard, String groupId) {
        for (var group : shard.listGroups(List.of(), List.of(), Long.MAX_VALUE)) {
            if (!group.groupId().equals(groupId)) {
                continue;
            }
            var members = group.groupType().equalsIgnoreCase("consumer")
                ? shard.consumerGroupDescribe(List.of(groupId), Long.MAX_VALUE).get(0).members().stream().map(each -> each.memberId())
                : shard.describeGroups(null, List.of(groupId), Long.MAX_VALUE).get(0).members().stream().map(each -> each.memberId());
            String ids = members.sorted().collect(Collectors.joining(","));
            return group.groupType().toLowerCase() + "\t" + group.groupState() + "\t" + ids;
        }
        return "none\t\t";
    }

    private static GroupCoordinatorShard newShard() {
        return new GroupCoordinatorShard.Builder(CONFIG, new GroupConfigManager(CONFIG.extractGroupConfigMap(SHARES), CONFIG, SHARES))
            .withAuthorizerPlugin(Optional.empty())
            .withLogContext(new LogContext())
            .withTime(Time.SYSTEM)
            .withSnapshotRegistry(new SnapshotRegistry(new LogContext()))
            .withTimer(idle(CoordinatorTimer.class))
            .withExecutor(idle(CoordinatorExecutor.class))
            .withCoordinatorMetrics(new GroupCoordinatorMetrics())
            .withTopicPartition(new TopicPartition("__consumer_offsets", 0))
            .build();
    }

    /** Returns one that forgets what it is asked to do later. */
    @SuppressWarnings("unchecked")
    private static <T> T idle(Class<?> kind) {
        return (T) Proxy.newProxyInstance(
            kind.getClassLoader(), new Class<?>[] {kind}, (self, method, given) -> method.getReturnType() == boolean.class ? false : null);
    }

    private static ByteBuffer bytes(String digits) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(digits));
    }
}
