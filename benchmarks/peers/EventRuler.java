import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import software.amazon.event.ruler.Machine;

/** event-ruler on one thread: rules (a name, a tab, JSON a line) and events (JSON a line) in, names of rules out. */
public final class EventRuler {
    private EventRuler() { }

    public static void main(String[] arguments) throws Exception {
        List<String> rules = Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8);
        List<String> events = Files.readAllLines(Path.of(arguments[1]), StandardCharsets.UTF_8);
        double seconds = Double.parseDouble(arguments[3]);
        long before = used();
        long begun = now();
        Machine machine = new Machine();
        for (String rule : rules) {
            int tab = rule.indexOf('\t');
            machine.addRule(rule.substring(0, tab), rule.substring(tab + 1));
        }
        double build = (now() - begun) / 1e9;
        long bytes = used() - before;
        List<String> answers = new ArrayList<>();
        for (String event : events) {
            answers.add(String.join(" ", machine.rulesForJSONEvent(event)));
        }
        Files.write(Path.of(arguments[2]), answers, StandardCharsets.UTF_8);
        // the answers warmed it up; now the clock runs
        long count = 0;
        begun = now();
        while (now() - begun < seconds * 1e9) {
            for (String event : events) {
                machine.rulesForJSONEvent(event);
                count++;
                if (now() - begun > 2 * seconds * 1e9) {
                    break;
                }
            }
        }
        System.out.println(build + " " + bytes + " " + count / ((now() - begun) / 1e9));
    }

    /** Processor time of this thread, in nanoseconds. */
    private static long now() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long used() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }
}
