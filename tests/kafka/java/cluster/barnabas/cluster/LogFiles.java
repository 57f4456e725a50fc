package barnabas.cluster;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** The files of one replica. */
final class LogFiles {
    private static final String SEGMENT = ".log";
    private static final String CLEAN_SHUTDOWN = ".kafka_cleanshutdown";

    private final File directory;

    LogFiles(File directory) {
        this.directory = directory;
    }

    /** Segments as Kafka's own code reads them, out of copies: the node alone may open its files for writing. */
    List<LogSegment> segments() throws IOException {
        Path copies = Files.createTempDirectory("segments");
        for (Path file : files("")) Files.copy(file, copies.resolve(file.getFileName()));
        List<LogSegment> segments = new ArrayList<>();
        for (long base : baseOffsets())
            segments.add(LogSegment.open(copies.toFile(), base, new LogConfig(Map.of()), Time.SYSTEM, true, 0, false, ""));
        return segments;
    }

    List<Long> baseOffsets() throws IOException {
        return files(SEGMENT).stream().map(file -> Long.parseLong(file.getFileName().toString().replace(SEGMENT, ""))).sorted().toList();
    }

    long size() throws IOException {
        long size = 0;
        for (Path file : files(SEGMENT)) size += Files.size(file);
        return size;
    }

    private List<Path> files(String suffix) throws IOException {
        try (Stream<Path> files = Files.list(directory.toPath())) {
            return files.filter(Files::isRegularFile).filter(file -> file.toString().endsWith(suffix)).toList();
        }
    }

    /** Writes behind the last record, as an older version would have; only while the node is down. */
    void append(byte[] records) throws IOException {
        List<Long> bases = baseOffsets();
        Path active = directory.toPath().resolve(String.format("%020d%s", bases.get(bases.size() - 1), SEGMENT));
        Files.write(active, records, StandardOpenOption.APPEND);
        // The node must not trust what it wrote down about this log when it stopped.
        Files.deleteIfExists(directory.toPath().resolveSibling(CLEAN_SHUTDOWN));
    }

    /** An offset of a checkpoint file of its log directory; -1 if it is not listed. */
    long checkpoint(String name, TopicPartition partition) throws IOException {
        File file = new File(directory.getParentFile(), name);
        return file.exists() ? new OffsetCheckpointFile(file, null).read().getOrDefault(partition, -1L) : -1;
    }
}
