import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;
import org.apache.commons.configuration2.CompositeConfiguration;

/**
 * The genuine `bookkeeper shell`, many commands in one process, driven over standard input.
 *
 * <p>Started with the path of a conf file, as BookieShell.main is with `-conf`. A line is the path of a conf file and one
 * command, words separated by tabs. What the command prints is followed by a line "= CODE", its exit code, or
 * "= thrown WHAT" where BookieShell.main would have logged the exception and ended with -1.
 */
public class AdminShell {
    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            String outcome;
            try {
                outcome = String.valueOf(shell(words[0]).run(java.util.Arrays.copyOfRange(words, 1, words.length)));
            } catch (Throwable error) {
                error.printStackTrace();
                outcome = "thrown " + String.valueOf(error).replace('\n', ' ');
            }
            System.out.println("= " + outcome);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** A new one for every command, as in a process of its own: commands change the configuration they are given. */
    private static BookieShell shell(String conf) throws Exception {
        ServerConfiguration settings = new ServerConfiguration();
        settings.loadConf(new File(conf).toURI().toURL());
        CompositeConfiguration configuration = new CompositeConfiguration();
        configuration.addConfiguration(settings);
        BookieShell shell = new BookieShell(
                LedgerIdFormatter.LONG_LEDGERID_FORMATTER, EntryFormatter.newEntryFormatter("string", settings));
        shell.setConf(configuration);
        return shell;
    }
}
