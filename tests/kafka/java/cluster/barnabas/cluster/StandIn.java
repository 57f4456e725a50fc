package barnabas.cluster;

import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;

/**
 * An object that looks like one inside of Kafka's processes, and answers some of its methods: by asking the node over the
 * wire, or out of its log directories. A call of any other method skips the test.
 */
final class StandIn<T> {
    interface Answer {
        Object to(Object[] arguments) throws Exception;
    }

    private final Class<T> type;
    private final Map<String, Answer> answers = new HashMap<>();

    private StandIn(Class<T> type) {
        this.type = type;
    }

    static <T> StandIn<T> of(Class<T> type) {
        return new StandIn<>(type);
    }

    /** All overloads of a method share their answer. */
    StandIn<T> on(String method, Answer answer) {
        answers.put(method, answer);
        return this;
    }

    StandIn<T> give(String method, Object value) {
        return on(method, arguments -> value);
    }

    T make() {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(this::answer));
    }

    private Object answer(InvocationOnMock call) throws Throwable {
        String method = call.getMethod().getName();
        Answer answer = answers.get(method);
        if (answer != null) return answer.to(call.getArguments());
        return switch (method) {
            case "toString" -> "stand-in for " + type.getSimpleName();
            case "hashCode" -> System.identityHashCode(call.getMock());
            case "equals" -> call.getMock() == call.getArgument(0);
            default -> {
                // What Scala takes for an argument that is left out.
                if (method.contains("$default$")) yield call.callRealMethod();
                throw Unanswered.because("INTERNALS: " + type.getSimpleName() + "." + method + "()");
            }
        };
    }

    /** Makes a stand-in when a test first asks for it: few tests do. */
    static <T> Supplier<T> lazy(Supplier<T> make) {
        return new Supplier<>() {
            private T made;

            @Override
            public synchronized T get() {
                if (made == null) made = make.get();
                return made;
            }
        };
    }
}
