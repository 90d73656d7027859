import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.http.HttpServer;
import org.apache.bookkeeper.http.service.HttpServiceRequest;
import org.apache.bookkeeper.http.service.HttpServiceResponse;
import org.apache.bookkeeper.meta.LedgerManagerFactory;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.server.http.BKHttpServiceProvider;
import org.apache.bookkeeper.stats.NullStatsLogger;

/**
 * The genuine services behind the genuine HTTP paths, without a HTTP server, driven over standard input.
 *
 * <p>Started with the path of a conf file. A line is an ApiType, a method, a body and parameters KEY=VALUE, separated by
 * tabs. The body of the answer is followed by a line "= STATUS", or "= thrown WHAT".
 */
public class AdminHttp {
    public static void main(String[] args) throws Exception {
        ServerConfiguration settings = new ServerConfiguration();
        settings.loadConf(new File(args[0]).toURI().toURL());
        MetadataBookieDriver driver = MetadataDrivers.getBookieDriver(URI.create(settings.getMetadataServiceUri()));
        driver.initialize(settings, NullStatsLogger.INSTANCE);
        LedgerManagerFactory ledgers = driver.getLedgerManagerFactory();
        BKHttpServiceProvider services = new BKHttpServiceProvider.Builder()
                .setServerConfiguration(settings).setLedgerManagerFactory(ledgers).build();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t", -1);
            String outcome;
            try {
                HttpServiceResponse answer = services
                        .provideHttpEndpointService(HttpServer.ApiType.valueOf(words[0]))
                        .handle(new HttpServiceRequest(
                                words[2].isEmpty() ? null : words[2], HttpServer.Method.valueOf(words[1]), parameters(words)));
                System.out.println(answer.getBody());
                outcome = String.valueOf(answer.getStatusCode());
            } catch (Throwable error) {
                error.printStackTrace();
                outcome = "thrown " + String.valueOf(error).replace('\n', ' ');
            }
            System.out.println("= " + outcome);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, String> parameters(String[] words) {
        Map<String, String> found = new HashMap<>();
        for (int at = 3; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            found.put(pair[0], pair[1]);
        }
        return found;
    }
}
