import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.hedwig.client.HedwigClient;
import org.apache.hedwig.client.api.MessageHandler;
import org.apache.hedwig.client.conf.ClientConfiguration;
import org.apache.hedwig.exceptions.PubSubException;
import org.apache.hedwig.filter.ClientMessageFilter;
import org.apache.hedwig.filter.MessageFilterBase;
import org.apache.hedwig.protocol.PubSubProtocol;
import org.apache.hedwig.protocol.PubSubProtocol.Message;
import org.apache.hedwig.protocol.PubSubProtocol.MessageHeader;
import org.apache.hedwig.protocol.PubSubProtocol.MessageSeqId;
import org.apache.hedwig.protocol.PubSubProtocol.PublishResponse;
import org.apache.hedwig.protocol.PubSubProtocol.SubscribeRequest.CreateOrAttach;
import org.apache.hedwig.protocol.PubSubProtocol.SubscriptionOptions;
import org.apache.hedwig.protocol.PubSubProtocol.SubscriptionPreferences;
import org.apache.hedwig.util.Callback;

/**
 * The genuine Hedwig client, driven over standard input: one command a line, words separated by blanks.
 *
 * <p>Messages are numbered; message N of a seed has the body that LedgerTool gives entry N of it, the text "N" as its
 * property "number", the bytes of its body's length as "size", and the type "numbered". CLIENT is a name that a test
 * chooses, SUBSCRIPTION stands for CLIENT TOPIC SUBSCRIBER.
 *
 * <pre>
 *   open CLIENT KEY=VALUE ...                    a client with these settings
 *   shut CLIENT                                  closes it
 *   publish CLIENT TOPIC SEED FIRST COUNT MAX    one by one, each answered before the next; the ids
 *   stream CLIENT TOPIC SEED FIRST COUNT MAX     all at once; the ids
 *   blind CLIENT TOPIC SEED FIRST COUNT MAX      all at once, by the call that tells no ids
 *   load NAME CLIENT TOPIC COUNT WINDOW          beside what follows: WINDOW at once, bodies "0", "1", ..., until COUNT
 *                                                are acknowledged; what fails is never sent again
 *   acked NAME COUNT                             waits until so many are acknowledged
 *   loaded NAME                                  waits for the end; "body id" of each that is acknowledged, and how
 *                                                many failed, as "failed N"
 *   subscribe SUBSCRIPTION MODE OPTION ...       force, bound=N, window=N, once (no resubscribing), KEY:VALUE
 *   deliver SUBSCRIPTION [filter]                notes what comes; filter: only numbers divisible by the preference
 *                                                "every", in the client
 *   stop SUBSCRIPTION                            stops delivery
 *   received SUBSCRIPTION COUNT                  waits for so many; all so far: id, size, SHA-256, number, size, type
 *   bodies SUBSCRIPTION COUNT                    the same as "id body"
 *   last SUBSCRIPTION BODY                       waits until a message of this text came; as bodies
 *   consume SUBSCRIPTION ID
 *   close SUBSCRIPTION
 *   unsubscribe SUBSCRIPTION
 *   has SUBSCRIPTION                             whether the client holds it
 *   events CLIENT COUNT                          waits for so many; "topic subscriber event" of each
 * </pre>
 *
 * Every answer ends with a line "= ok" or "= CODE CLASS [CAUSE ...]: MESSAGE" (the status's number; 1: another error).
 */
public class HedwigTool {
    private static final long PATIENCE_S = 40;
    private static final int AT_ONCE_MAX = 64;
    private static final int BYTES_AT_ONCE_MAX = 8 << 20;
    private static final long PAUSE_MS = 50;

    private final Map<String, Opened> clients = new ConcurrentHashMap<>();
    private final Map<String, Load> loads = new ConcurrentHashMap<>();

    /** One client, its events, and what came for each of its subscriptions. */
    private static class Opened {
        HedwigClient client;
        final Log events = new Log();
        final Map<String, Log> received = new ConcurrentHashMap<>();
    }

    /** What came so far, in its order; whoever waits is told, once what came has been dealt with. */
    private static class Log {
        private final List<Object> lines = new ArrayList<>();
        private int underWay;

        synchronized void add(Object line) {
            lines.add(line);
            notifyAll();
        }

        synchronized void came(Object line) {
            lines.add(line);
            underWay++;
        }

        synchronized void dealtWith() {
            underWay--;
            notifyAll();
        }

        synchronized int size() {
            return lines.size();
        }

        synchronized List<Object> await(java.util.function.Predicate<List<Object>> enough) throws Exception {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            while (underWay > 0 || !enough.test(lines)) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    throw new IllegalStateException("only " + size() + " came");
                }
                wait(left);
            }
            return new ArrayList<>(lines);
        }
    }

    public static void main(String[] args) throws Exception {
        HedwigTool tool = new HedwigTool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ByteArrayOutputStream answer = new ByteArrayOutputStream();
            tool.answer(line.split(" "), new PrintStream(answer, true, "UTF-8"));
            System.out.write(answer.toByteArray());
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(String[] words, PrintStream out) {
        String outcome = "= ok";
        try {
            run(words, out);
        } catch (Exception error) {
            outcome = "= " + told(error).replace('\n', ' ');
            if (!(error instanceof PubSubException)) {
                error.printStackTrace();
            }
        }
        out.println(outcome);
    }

    /** "CODE CLASS [CAUSE ...]: MESSAGE" of an error. */
    private static String told(Throwable error) {
        int code = error instanceof PubSubException ? ((PubSubException) error).getCode().getNumber() : 1;
        StringBuilder names = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            names.append(' ').append(each.getClass().getSimpleName());
        }
        return code + names.toString() + ": " + error.getMessage();
    }

    private void run(String[] words, PrintStream out) throws Exception {
        switch (words[0]) {
            case "open":
                clients.put(words[1], open(Arrays.copyOfRange(words, 2, words.length)));
                break;
            case "shut":
                clients.remove(words[1]).client.close();
                break;
            case "publish":
                for (int number = number(words[4]); number < number(words[4]) + number(words[5]); number++) {
                    Message message = message(words[3], number, number(words[6]));
                    out.println(id(opened(words).client.getPublisher().publish(bytes(words[2]), message)));
                }
                break;
            case "stream":
                stream(words, true, out);
                break;
            case "blind":
                stream(words, false, out);
                break;
            case "load":
                Load load = new Load(opened(new String[] {"", words[2]}).client, bytes(words[3]), number(words[4]));
                loads.put(words[1], load);
                load.start(number(words[5]));
                break;
            case "acked":
                loads.get(words[1]).acked.await(lines -> lines.size() >= number(words[2]));
                break;
            case "loaded":
                loads.remove(words[1]).print(out);
                break;
            case "subscribe":
                opened(words).client.getSubscriber().subscribe(bytes(words[2]), bytes(words[3]), options(words));
                break;
            case "deliver":
                deliver(words);
                break;
            case "stop":
                opened(words).client.getSubscriber().stopDelivery(bytes(words[2]), bytes(words[3]));
                break;
            case "received":
                for (Object each : received(words).await(lines -> lines.size() >= number(words[4]))) {
                    out.println(line((Message) each));
                }
                break;
            case "bodies":
                printBodies(received(words).await(lines -> lines.size() >= number(words[4])), out);
                break;
            case "last":
                ByteString wanted = bytes(words[4]);
                printBodies(received(words).await(lines -> lines.stream()
                        .anyMatch(each -> ((Message) each).getBody().equals(wanted))), out);
                break;
            case "consume":
                opened(words).client.getSubscriber().consume(bytes(words[2]), bytes(words[3]),
                        MessageSeqId.newBuilder().setLocalComponent(Long.parseLong(words[4])).build());
                break;
            case "close":
                opened(words).client.getSubscriber().closeSubscription(bytes(words[2]), bytes(words[3]));
                break;
            case "unsubscribe":
                opened(words).client.getSubscriber().unsubscribe(bytes(words[2]), bytes(words[3]));
                break;
            case "has":
                out.println(opened(words).client.getSubscriber().hasSubscription(bytes(words[2]), bytes(words[3])));
                break;
            case "events":
                for (Object each : opened(words).events.await(lines -> lines.size() >= number(words[2]))) {
                    out.println(each);
                }
                break;
            default:
                throw new IllegalArgumentException("there is no command " + words[0]);
        }
    }

    private static Opened open(String[] settings) {
        Opened opened = new Opened();
        Map<String, String> values = new TreeMap<>();
        for (String setting : settings) {
            String[] pair = setting.split("=", 2);
            values.put(pair[0], pair[1]);
        }
        opened.client = new HedwigClient(new Settings(values));
        opened.client.getSubscriber().addSubscriptionListener((topic, subscriber, event) ->
                opened.events.add(topic.toStringUtf8() + " " + subscriber.toStringUtf8() + " " + event));
        return opened;
    }

    /** Settings that are given one by one, and not as a file. */
    private static class Settings extends ClientConfiguration {
        Settings(Map<String, String> values) {
            values.forEach((key, value) -> conf.setProperty(key, value));
        }
    }

    private Opened opened(String[] words) {
        return clients.get(words[1]);
    }

    private Log received(String[] words) {
        return opened(words).received.computeIfAbsent(words[2] + " " + words[3], name -> new Log());
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private static ByteString bytes(String word) {
        return ByteString.copyFromUtf8(word);
    }

    private static long id(PublishResponse response) {
        return response.getPublishedMsgId().getLocalComponent();
    }

    // --- publishing

    private static Message message(String seed, int number, int sizeMax) throws Exception {
        byte[] body = LedgerTool.payload(seed, number, sizeMax);
        ByteString size = ByteString.copyFrom(new byte[] {
            (byte) (body.length >> 24), (byte) (body.length >> 16), (byte) (body.length >> 8), (byte) body.length});
        PubSubProtocol.Map properties = PubSubProtocol.Map.newBuilder()
                .addEntries(entry("number", bytes(Integer.toString(number))))
                .addEntries(entry("size", size))
                .build();
        MessageHeader header =
                MessageHeader.newBuilder().setProperties(properties).setMessageType("numbered").build();
        return Message.newBuilder().setBody(ByteString.copyFrom(body)).setHeader(header).build();
    }

    private static PubSubProtocol.Map.Entry entry(String key, ByteString value) {
        return PubSubProtocol.Map.Entry.newBuilder().setKey(key).setValue(value).build();
    }

    private static ByteString property(Message message, String key) {
        for (PubSubProtocol.Map.Entry each : message.getHeader().getProperties().getEntriesList()) {
            if (each.getKey().equals(key)) {
                return each.getValue();
            }
        }
        return ByteString.EMPTY;
    }

    private static String line(Message message) throws Exception {
        ByteString size = property(message, "size");
        StringBuilder hex = new StringBuilder();
        for (int at = 0; at < size.size(); at++) {
            hex.append(String.format("%02x", size.byteAt(at)));
        }
        return message.getMsgId().getLocalComponent() + " " + LedgerTool.fingerprint(message.getBody().toByteArray())
                + " " + property(message, "number").toStringUtf8() + " " + hex + " "
                + message.getHeader().getMessageType();
    }

    private static void printBodies(List<Object> messages, PrintStream out) {
        for (Object each : messages) {
            Message message = (Message) each;
            out.println(message.getMsgId().getLocalComponent() + " " + message.getBody().toStringUtf8());
        }
    }

    private void stream(String[] words, boolean withIds, PrintStream out) throws Exception {
        HedwigClient client = opened(words).client;
        int first = number(words[4]);
        int count = number(words[5]);
        Semaphore room = new Semaphore(AT_ONCE_MAX);
        Semaphore bytes = new Semaphore(BYTES_AT_ONCE_MAX);
        long[] ids = new long[count];
        List<PubSubException> failures = new ArrayList<>();
        for (int number = first; number < first + count; number++) {
            Message message = message(words[3], number, number(words[6]));
            int size = message.getSerializedSize();
            int place = number - first;
            room.acquire();
            bytes.acquire(size);
            Answer answer = new Answer(value -> ids[place] = value, failures, () -> {
                bytes.release(size);
                room.release();
            });
            if (withIds) {
                client.getPublisher().asyncPublishWithResponse(bytes(words[2]), message, answer.withId(), null);
            } else {
                client.getPublisher().asyncPublish(bytes(words[2]), message, answer.withoutId(), null);
            }
        }
        room.acquire(AT_ONCE_MAX);
        synchronized (failures) {
            if (!failures.isEmpty()) {
                throw failures.get(0);
            }
        }
        for (long id : ids) {
            if (withIds) {
                out.println(id);
            }
        }
    }

    /** What both kinds of publishing do with their answers. */
    private static class Answer {
        private final java.util.function.LongConsumer onId;
        private final List<PubSubException> failures;
        private final Runnable onEnd;

        Answer(java.util.function.LongConsumer onId, List<PubSubException> failures, Runnable onEnd) {
            this.onId = onId;
            this.failures = failures;
            this.onEnd = onEnd;
        }

        Callback<PublishResponse> withId() {
            return callback();
        }

        Callback<Void> withoutId() {
            return callback();
        }

        private <T> Callback<T> callback() {
            return new Callback<T>() {
                @Override
                public void operationFinished(Object context, T response) {
                    if (response instanceof PublishResponse) {
                        onId.accept(id((PublishResponse) response));
                    }
                    onEnd.run();
                }

                @Override
                public void operationFailed(Object context, PubSubException error) {
                    synchronized (failures) {
                        failures.add(error);
                    }
                    onEnd.run();
                }
            };
        }
    }

    /** Publishes that go on while hubs come and go. */
    private static class Load {
        private final HedwigClient client;
        private final ByteString topic;
        private final int count;
        final Log acked = new Log();
        private final List<PubSubException> failures = new ArrayList<>();
        private Thread thread;

        Load(HedwigClient client, ByteString topic, int count) {
            this.client = client;
            this.topic = topic;
            this.count = count;
        }

        void start(int window) {
            thread = new Thread(() -> {
                try {
                    publish(window);
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private void publish(int window) throws InterruptedException {
            Semaphore room = new Semaphore(window);
            for (int body = 0, seen = 0; acked.size() < count; body++) {
                room.acquire();
                String text = Integer.toString(body);
                Message message = Message.newBuilder().setBody(bytes(text)).build();
                Answer answer = new Answer(id -> acked.add(text + " " + id), failures, room::release);
                client.getPublisher().asyncPublishWithResponse(topic, message, answer.withId(), null);
                int failed;
                synchronized (failures) {
                    failed = failures.size();
                }
                if (failed != seen) {
                    seen = failed;
                    Thread.sleep(PAUSE_MS); // nobody serves the topic: as a publisher would, try again a little later
                }
            }
            room.acquire(window);
        }

        void print(PrintStream out) throws Exception {
            thread.join(TimeUnit.SECONDS.toMillis(PATIENCE_S));
            if (thread.isAlive()) {
                throw new IllegalStateException("still publishing, " + acked.size() + " are acknowledged, and "
                        + failures.size() + " failed, the last: "
                        + (failures.isEmpty() ? "" : told(failures.get(failures.size() - 1))));
            }
            for (Object line : acked.await(lines -> true)) {
                out.println(line);
            }
            out.println("failed " + failures.size());
        }
    }

    // --- subscribing

    private static SubscriptionOptions options(String[] words) {
        SubscriptionOptions.Builder options =
                SubscriptionOptions.newBuilder().setCreateOrAttach(CreateOrAttach.valueOf(words[4]));
        PubSubProtocol.Map.Builder more = PubSubProtocol.Map.newBuilder();
        for (String word : Arrays.copyOfRange(words, 5, words.length)) {
            if (word.equals("force")) {
                options.setForceAttach(true);
            } else if (word.equals("once")) {
                options.setEnableResubscribe(false);
            } else if (word.startsWith("bound=")) {
                options.setMessageBound(number(word.substring(6)));
            } else if (word.startsWith("window=")) {
                options.setMessageWindowSize(number(word.substring(7)));
            } else {
                String[] pair = word.split(":", 2);
                more.addEntries(entry(pair[0], bytes(pair[1])));
            }
        }
        return more.getEntriesCount() == 0 ? options.build() : options.setOptions(more).build();
    }

    private void deliver(String[] words) throws Exception {
        Log log = received(words);
        MessageHandler handler = (topic, subscriber, message, callback, context) -> {
            log.came(message); // in its place: the next one may be handed out by the thread of another connection
            try {
                callback.operationFinished(context, null);
            } finally {
                log.dealtWith(); // not before: a CONSUME that it brings about has left now
            }
        };
        if (words.length > 4) {
            opened(words).client.getSubscriber()
                    .startDeliveryWithFilter(bytes(words[2]), bytes(words[3]), handler, new Every());
        } else {
            opened(words).client.getSubscriber().startDelivery(bytes(words[2]), bytes(words[3]), handler);
        }
    }

    /** Takes numbers that are divisible by what the subscription's preferences say. */
    private static class Every implements ClientMessageFilter {
        private int divisor;

        @Override
        public MessageFilterBase setSubscriptionPreferences(
                ByteString topic, ByteString subscriber, SubscriptionPreferences preferences) {
            for (PubSubProtocol.Map.Entry each : preferences.getOptions().getEntriesList()) {
                if (each.getKey().equals("every")) {
                    divisor = number(each.getValue().toStringUtf8());
                }
            }
            return this;
        }

        @Override
        public boolean testMessage(Message message) {
            return number(property(message, "number").toStringUtf8()) % divisor == 0;
        }
    }
}
