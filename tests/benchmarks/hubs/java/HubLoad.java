import com.google.protobuf.ByteString;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.hedwig.client.HedwigClient;
import org.apache.hedwig.client.api.MessageHandler;
import org.apache.hedwig.client.api.Publisher;
import org.apache.hedwig.client.api.Subscriber;
import org.apache.hedwig.client.conf.ClientConfiguration;
import org.apache.hedwig.exceptions.PubSubException;
import org.apache.hedwig.protocol.PubSubProtocol.Message;
import org.apache.hedwig.protocol.PubSubProtocol.PublishResponse;
import org.apache.hedwig.protocol.PubSubProtocol.SubscriptionOptions;
import org.apache.hedwig.util.Callback;
import org.apache.hedwig.util.HedwigSocketAddress;

/**
 * The genuine Java client under one measurement: publishes and subscribes against a hub, and tells its figures.
 *
 * <pre>
 *   HOST:PORT KIND TOPICS OUTSTANDING READERS PER_S MESSAGES WARMING_SECONDS SECONDS TAG
 * </pre>
 *
 * What the words mean, the marks and the line of figures: loads/load.py. The client has its defaults: a connection for
 * each subscription, messages consumed by themselves.
 */
public class HubLoad {
    private static final int BODY_SIZE = 1024;
    private static final int FILL_OUTSTANDING = 500;
    private static final double WARMING_SHARE = 0.1;
    private static final double SMALLEST_S = 1e-7;
    private static final double LOG_RATIO = Math.log(1.01);
    private static final long WAIT_S = 60;
    private static final int TRIES = 20;

    private final Publisher publisher;
    private final Subscriber subscriber;
    private final String kind;
    private final int outstanding;
    private final int readers;
    private final double perSecond;
    private final int messages;
    private final double warming;
    private final double seconds;
    private final String tag;
    private final List<ByteString> topics;
    private final byte[] filling = new byte[BODY_SIZE];

    private final TreeMap<Integer, Integer> buckets = new TreeMap<>();
    private long longest;
    private int counted;
    private volatile long start = Long.MAX_VALUE;
    private volatile long end = Long.MAX_VALUE;
    private boolean startMarked;
    private volatile PubSubException failure;

    private HubLoad(HedwigClient client, String[] words) {
        publisher = client.getPublisher();
        subscriber = client.getSubscriber();
        kind = words[1];
        outstanding = Integer.parseInt(words[3]);
        readers = Integer.parseInt(words[4]);
        perSecond = Double.parseDouble(words[5]);
        messages = Integer.parseInt(words[6]);
        warming = Double.parseDouble(words[7]);
        seconds = Double.parseDouble(words[8]);
        tag = words[9];
        topics = names("", Integer.parseInt(words[2]));
        new Random(1).nextBytes(filling);
    }

    public static void main(String[] words) throws Exception {
        String address = words[0];
        ClientConfiguration configuration = new ClientConfiguration() {
            @Override
            protected HedwigSocketAddress getDefaultServerHedwigSocketAddress() {
                return new HedwigSocketAddress(address);
            }

            @Override
            public InetSocketAddress getDefaultServerHost() {
                return getDefaultServerHedwigSocketAddress().getSocketAddress();
            }
        };
        try {
            new HubLoad(new HedwigClient(configuration), words).run();
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private void run() throws Exception {
        switch (kind) {
            case "publish":
                touch(topics);
                publish(outstanding, true);
                break;
            case "deliver":
            case "paced":
                read();
                touch(topics);
                if (kind.equals("paced")) {
                    paced();
                } else {
                    publish(outstanding, false);
                }
                break;
            case "drain":
                drain("warm", (int) (messages * WARMING_SHARE), false);
                drain("full", messages, true);
                break;
            case "acquire":
                acquire();
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
        if (failure != null) {
            throw failure;
        }
        tell();
    }

    // --- publishing

    private List<ByteString> names(String part, int count) {
        List<ByteString> names = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            names.add(ByteString.copyFromUtf8(tag + part + "-" + number));
        }
        return names;
    }

    private Message message(long at) {
        byte[] body = filling.clone();
        ByteBuffer.wrap(body).putLong(0, at);
        return Message.newBuilder().setBody(ByteString.copyFrom(body)).build();
    }

    /** The client knows the hub of each topic afterwards; it reorders publishes before that. */
    private void touch(List<ByteString> names) throws Exception {
        for (ByteString name : names) {
            for (int tries = 1; ; tries++) {
                try {
                    publisher.publish(name, message(0));
                    break;
                } catch (PubSubException error) {
                    if (tries == TRIES) {
                        throw error;
                    }
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(100));
                }
            }
        }
    }

    private void send(ByteString topic, long at, Semaphore free, boolean counts) {
        publisher.asyncPublishWithResponse(topic, message(at), new Callback<PublishResponse>() {
            @Override
            public void operationFinished(Object context, PublishResponse response) {
                if (counts) {
                    done(at);
                }
                free.release();
            }

            @Override
            public void operationFailed(Object context, PubSubException error) {
                failure = error;
                free.release();
            }
        }, null);
    }

    private void publish(int window, boolean counts) throws Exception {
        Semaphore free = new Semaphore(window);
        beginClock();
        for (int position = 0; tick() && failure == null; position++) {
            if (free.tryAcquire(10, TimeUnit.MILLISECONDS)) {
                send(topics.get(position % topics.size()), System.nanoTime(), free, counts);
            } else {
                position--;
            }
        }
    }

    private void paced() throws Exception {
        Semaphore free = new Semaphore(outstanding);
        beginClock();
        long began = System.nanoTime();
        long step = (long) (1e9 / perSecond);
        for (long due = began; tick() && failure == null; ) {
            if (System.nanoTime() < due) {
                LockSupport.parkNanos(50_000);
            } else if (free.tryAcquire(10, TimeUnit.MILLISECONDS)) {
                send(topics.get(0), due, free, false);
                due += step;
            }
        }
    }

    private void fill(List<ByteString> names, int count) throws Exception {
        Semaphore free = new Semaphore(FILL_OUTSTANDING);
        touch(names);
        for (int number = names.size(); number < count; number++) {
            free.acquire();
            send(names.get(number % names.size()), 0, free, false);
        }
        if (!free.tryAcquire(FILL_OUTSTANDING, WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not all messages were answered");
        }
    }

    // --- subscribing

    private static final class Wait implements Callback<Void> {
        private final Semaphore answered = new Semaphore(0);
        private final AtomicInteger failed = new AtomicInteger();
        private volatile PubSubException why;

        @Override
        public void operationFinished(Object context, Void nothing) {
            answered.release();
        }

        @Override
        public void operationFailed(Object context, PubSubException error) {
            why = error;
            failed.incrementAndGet();
            answered.release();
        }

        void forAll(int count) throws Exception {
            if (!answered.tryAcquire(count, WAIT_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not all subscriptions were answered");
            }
            if (why != null) {
                throw why;
            }
        }
    }

    private static final SubscriptionOptions OPTIONS = SubscriptionOptions.newBuilder().build();

    private static ByteString reader(int number) {
        return ByteString.copyFromUtf8("sub" + number);
    }

    private void subscribe(List<ByteString> names, int number) throws Exception {
        Wait wait = new Wait();
        for (ByteString name : names) {
            subscriber.asyncSubscribe(name, reader(number), OPTIONS, wait, null);
        }
        wait.forAll(names.size());
    }

    private void read() throws Exception {
        MessageHandler handler = (topic, reader, message, callback, context) -> {
            long at = message.getBody().asReadOnlyByteBuffer().getLong(0);
            if (at != 0) {
                done(at);
            }
            callback.operationFinished(context, null);
        };
        for (int number = 0; number < readers; number++) {
            subscribe(topics, number);
            for (ByteString topic : topics) {
                subscriber.startDelivery(topic, reader(number), handler);
            }
        }
    }

    private void drain(String part, int count, boolean counts) throws Exception {
        List<ByteString> names = names(part, topics.size());
        subscribe(names, 0);
        for (ByteString name : names) {
            subscriber.closeSubscription(name, reader(0));
        }
        fill(names, count);
        Semaphore arrived = new Semaphore(0);
        MessageHandler handler = (topic, reader, message, callback, context) -> {
            arrived.release();
            callback.operationFinished(context, null);
        };
        if (counts) {
            mark("start");
        }
        long began = System.nanoTime();
        subscribe(names, 0);
        for (ByteString name : names) {
            subscriber.startDelivery(name, reader(0), handler);
        }
        if (!arrived.tryAcquire(count, WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(arrived.availablePermits() + " of " + count + " messages arrived");
        }
        if (counts) {
            start = began;
            end = System.nanoTime();
            mark("end");
            counted = count;
        }
        for (ByteString name : names) {
            subscriber.closeSubscription(name, reader(0));
        }
    }

    private void acquire() throws Exception {
        Semaphore free = new Semaphore(outstanding);
        beginClock();
        for (int number = 0; tick() && failure == null; ) {
            if (!free.tryAcquire(10, TimeUnit.MILLISECONDS)) {
                continue;
            }
            long began = System.nanoTime();
            ByteString name = ByteString.copyFromUtf8(tag + "-" + number++);
            subscriber.asyncSubscribe(name, reader(0), OPTIONS, new Callback<Void>() {
                @Override
                public void operationFinished(Object context, Void nothing) {
                    done(began);
                    free.release();
                }

                @Override
                public void operationFailed(Object context, PubSubException error) {
                    failure = error;
                    free.release();
                }
            }, null);
        }
    }

    // --- counting

    private void beginClock() {
        start = System.nanoTime() + (long) (warming * 1e9);
        end = start + (long) (seconds * 1e9);
    }

    private boolean tick() {
        long now = System.nanoTime();
        if (!startMarked && now >= start) {
            startMarked = true;
            mark("start");
        }
        if (now < end) {
            return true;
        }
        mark("end");
        return false;
    }

    private synchronized void done(long began) {
        long now = System.nanoTime();
        if (now < start || now >= end) {
            return;
        }
        counted++;
        long took = now - began;
        longest = Math.max(longest, took);
        buckets.merge((int) (Math.log(Math.max(took / 1e9, SMALLEST_S) / SMALLEST_S) / LOG_RATIO), 1, Integer::sum);
    }

    private static void mark(String name) {
        say("{\"mark\": \"" + name + "\"}");
    }

    private synchronized void tell() {
        StringBuilder text = new StringBuilder();
        buckets.forEach((bucket, count) ->
            text.append(text.length() > 0 ? ", " : "").append('"').append(bucket).append("\": ").append(count));
        String latencies = buckets.isEmpty() ? ""
            : ", \"latencies\": [{\"buckets\": {" + text + "}, \"max_s\": " + longest / 1e9 + "}]";
        say("{\"operations\": " + counted + ", \"seconds\": " + (end - start) / 1e9 + latencies + "}");
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
