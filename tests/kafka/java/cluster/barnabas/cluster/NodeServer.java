package barnabas.cluster;

import barnabas.runner.Plan;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** The process that makes and ends nodes (node_server.py), asked over its standard input. */
final class NodeServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static NodeServer running;

    private final Process process;
    private final BufferedReader answers;
    private final BufferedWriter questions;

    private NodeServer() throws IOException {
        process = new ProcessBuilder(Plan.nodeServer()).directory(new File(Plan.checkout()))
            .redirectError(ProcessBuilder.Redirect.appendTo(new File(Plan.out(), "node-server.txt"))).start();
        answers = process.inputReader(StandardCharsets.UTF_8);
        questions = process.outputWriter(StandardCharsets.UTF_8);
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
    }

    /** Throws Unanswered if the nodes refuse settings or feature levels. */
    static synchronized JsonNode ask(Map<String, ?> command) {
        JsonNode answer;
        try {
            if (running == null || !running.process.isAlive()) running = new NodeServer();
            running.questions.write(JSON.writeValueAsString(command) + "\n");
            running.questions.flush();
            String line = running.answers.readLine();
            if (line == null) throw new IOException("the node server ended; node-server.txt has its last words");
            answer = JSON.readTree(line);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        if (answer.has("refused")) throw Unanswered.because("REFUSED: " + answer.get("refused").asText());
        if (answer.has("error")) throw new IllegalStateException(command.get("do") + ": " + answer.get("error").asText());
        return answer;
    }
}
