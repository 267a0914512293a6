import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptReport;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ApplicationSubmissionContext;
import org.apache.hadoop.yarn.api.records.ContainerLaunchContext;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.YarnApplicationState;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.client.api.YarnClientApplication;
import org.apache.hadoop.yarn.client.cli.ApplicationCLI;
import org.apache.hadoop.yarn.client.cli.ClusterCLI;
import org.apache.hadoop.yarn.client.cli.LogsCLI;
import org.apache.hadoop.yarn.client.cli.NodeCLI;
import org.apache.hadoop.yarn.client.cli.QueueCLI;
import org.apache.hadoop.yarn.client.cli.RMAdminCLI;
import org.apache.hadoop.yarn.client.cli.YarnCLI;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * Runs lines of the yarn command against one cluster, and writes what each says and returns. Arguments: the file with
 * the lines (JSON), the file for the answers, and "mini" for a cluster of YARN's own; else the one that the
 * configuration on the classpath names. Three applications are there: one failed, one runs, one was killed.
 */
public final class Commands {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    Configuration conf = new YarnConfiguration();
    conf.setInt("yarn.resourcemanager.connect.max-wait.ms", 5000);
    if (arguments[2].equals("mini")) {
      conf.set("yarn.scheduler.capacity.root.queues", "default,b");
      conf.set("yarn.scheduler.capacity.root.default.capacity", "60");
      conf.set("yarn.scheduler.capacity.root.b.capacity", "40");
      conf.set("yarn.scheduler.minimum-allocation-mb", "256");
      conf.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
      conf.setInt("yarn.nodemanager.resource.memory-mb", 4096);
      conf.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
      MiniYARNCluster cluster = new MiniYARNCluster("commands", 1, 2, 1, 1);
      cluster.init(conf);
      cluster.start();
      conf = cluster.getConfig();
    }
    YarnClient client = YarnClient.createYarnClient();
    client.init(conf);
    client.start();
    until(() -> client.getNodeReports(NodeState.RUNNING).size() == 2);
    Map<String, String> names = new LinkedHashMap<>();
    ApplicationId failed = submitted(client, "exit 3");
    ApplicationId runs = submitted(client, "sleep 600");
    ApplicationId killed = submitted(client, "sleep 600");
    until(() -> state(client, killed) == YarnApplicationState.RUNNING || state(client, killed) == YarnApplicationState.ACCEPTED);
    client.killApplication(killed);
    until(() -> state(client, failed) == YarnApplicationState.FAILED && state(client, killed) == YarnApplicationState.KILLED
        && !client.getApplicationAttempts(runs).isEmpty()
        && !client.getContainers(client.getApplicationAttempts(runs).get(0).getApplicationAttemptId()).isEmpty());
    Thread.sleep(2000);
    ApplicationAttemptReport attempt = client.getApplicationAttempts(runs).get(0);
    names.put("failed", failed.toString());
    names.put("runs", runs.toString());
    names.put("killed", killed.toString());
    names.put("attempt", attempt.getApplicationAttemptId().toString());
    names.put("container", client.getContainers(attempt.getApplicationAttemptId()).get(0).getContainerId().toString());
    names.put("node", client.getNodeReports(NodeState.RUNNING).get(0).getNodeId().toString());
    List<Object> answers = new ArrayList<>();
    for (Object line : json.readValue(new File(arguments[0]), List.class)) {
      String text = line.toString();
      for (Map.Entry<String, String> name : names.entrySet()) {
        text = text.replace("{" + name.getKey() + "}", name.getValue());
      }
      answers.add(ran(conf, line.toString(), text.split(" ")));
    }
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("names", names);
    all.put("answers", answers);
    json.writeValue(new File(arguments[1]), all);
    System.exit(0);
  }

  private static Map<String, Object> ran(Configuration conf, String line, String[] words) throws Exception {
    PrintStream before = System.out;
    PrintStream beforeErrors = System.err;
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream errors = new ByteArrayOutputStream();
    System.setOut(new PrintStream(out, true));
    System.setErr(new PrintStream(errors, true));
    Object code;
    try {
      boolean applications = Arrays.asList("application", "applicationattempt", "container").contains(words[0]);
      String[] rest = applications ? words : Arrays.copyOfRange(words, 1, words.length);
      code = ToolRunner.run(new Configuration(conf), tool(words[0]), rest);
    } catch (Throwable thrown) {
      // the command's main ends so with 1 and a stack trace
      code = 1;
      System.err.println("Exception in thread \"main\" " + thrown);
    } finally {
      System.setOut(before);
      System.setErr(beforeErrors);
    }
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("line", line);
    answer.put("code", code);
    answer.put("out", out.toString());
    answer.put("errors", errors.toString());
    return answer;
  }

  private static Tool tool(String word) {
    YarnCLI made;
    switch (word) {
      case "rmadmin": return new RMAdminCLI();
      case "logs": return new LogsCLI();
      case "cluster": made = new ClusterCLI(); break;
      case "node": made = new NodeCLI(); break;
      case "queue": made = new QueueCLI(); break;
      default: made = new ApplicationCLI();
    }
    made.setSysOutPrintStream(System.out);
    made.setSysErrPrintStream(System.err);
    return made;
  }

  private static YarnApplicationState state(YarnClient client, ApplicationId app) throws Exception {
    return client.getApplicationReport(app).getYarnApplicationState();
  }

  private static ApplicationId submitted(YarnClient client, String command) throws Exception {
    YarnClientApplication app = client.createApplication();
    ApplicationSubmissionContext context = app.getApplicationSubmissionContext();
    context.setApplicationName("commands");
    context.setQueue("default");
    context.setMaxAppAttempts(1);
    context.setResource(Resource.newInstance(256, 1));
    context.setAMContainerSpec(ContainerLaunchContext.newInstance(
        new HashMap<>(), new HashMap<>(), Collections.singletonList(command), null, null, null));
    return client.submitApplication(context);
  }

  private interface Condition {
    boolean holds() throws Exception;
  }

  private static void until(Condition wanted) throws Exception {
    for (int wait = 0; wait < 600 && !wanted.holds(); wait++) {
      Thread.sleep(200);
    }
  }
}
