import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.records.*;
import org.apache.hadoop.yarn.client.api.YarnClient;
import org.apache.hadoop.yarn.client.api.YarnClientApplication;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

public final class Wire {
  public static void main(String[] args) throws Exception {
    Configuration conf = new YarnConfiguration();
    conf.set("yarn.resourcemanager.scheduler.class", args[1].equals("fair")
        ? "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"
        : "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler");
    conf.set("yarn.scheduler.capacity.root.queues", "default,b");
    conf.set("yarn.scheduler.capacity.root.default.capacity", "60");
    conf.set("yarn.scheduler.capacity.root.b.capacity", "40");
    conf.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
    conf.set("yarn.scheduler.minimum-allocation-mb", "256");
    MiniYARNCluster cluster = new MiniYARNCluster("wire", 1, 2, 1, 1);
    cluster.init(conf);
    cluster.start();
    Configuration made = cluster.getConfig();
    YarnClient client = YarnClient.createYarnClient();
    client.init(made);
    client.start();
    for (int wait = 0; client.getNodeReports(NodeState.RUNNING).size() < 2 && wait < 300; wait++) {
      Thread.sleep(100);
    }
    List<ApplicationId> apps = new ArrayList<>();
    for (String command : new String[] {"exit 3", "sleep 600", "sleep 600"}) {
      YarnClientApplication app = client.createApplication();
      ApplicationSubmissionContext context = app.getApplicationSubmissionContext();
      context.setApplicationName("wire");
      context.setQueue("default");
      context.setMaxAppAttempts(1);
      context.setApplicationTags(Collections.singleton("t1"));
      context.setResource(Resource.newInstance(256, 1));
      context.setAMContainerSpec(ContainerLaunchContext.newInstance(
          new HashMap<>(), new HashMap<>(), Collections.singletonList(command), null, null, null));
      apps.add(client.submitApplication(context));
    }
    client.killApplication(apps.get(2));
    for (int wait = 0; wait < 300; wait++) {
      YarnApplicationState first = client.getApplicationReport(apps.get(0)).getYarnApplicationState();
      YarnApplicationState last = client.getApplicationReport(apps.get(2)).getYarnApplicationState();
      if (first == YarnApplicationState.FAILED && last == YarnApplicationState.KILLED
          && client.getContainers(client.getApplicationAttempts(apps.get(1)).isEmpty() ? null
             : client.getApplicationAttempts(apps.get(1)).get(0).getApplicationAttemptId()).size() > 0) {
        break;
      }
      Thread.sleep(200);
    }
    Thread.sleep(2000);
    String base = "http://" + made.get("yarn.resourcemanager.webapp.address");
    String node = client.getNodeReports(NodeState.RUNNING).get(0).getNodeId().toString();
    String failed = apps.get(0).toString(), runs = apps.get(1).toString(), killed = apps.get(2).toString();
    String attempt = client.getApplicationAttempts(apps.get(1)).get(0).getApplicationAttemptId().toString();
    String container = client.getContainers(client.getApplicationAttempts(apps.get(1)).get(0).getApplicationAttemptId()).get(0).getContainerId().toString();
    String[][] calls = {
      {"GET", "/ws/v1/cluster"}, {"GET", "/ws/v1/cluster/info"}, {"GET", "/ws/v1/cluster/metrics"},
      {"GET", "/ws/v1/cluster/scheduler"}, {"GET", "/ws/v1/cluster/apps"},
      {"GET", "/ws/v1/cluster/apps?states=KILLED"}, {"GET", "/ws/v1/cluster/apps?states=NEVER"},
      {"GET", "/ws/v1/cluster/apps?limit=x"}, {"GET", "/ws/v1/cluster/apps?finalStatus=NEVER"},
      {"GET", "/ws/v1/cluster/appstatistics"}, {"GET", "/ws/v1/cluster/appstatistics?states=running&applicationTypes=YARN"},
      {"GET", "/ws/v1/cluster/apps/" + failed}, {"GET", "/ws/v1/cluster/apps/" + runs}, {"GET", "/ws/v1/cluster/apps/" + killed},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/state"}, {"GET", "/ws/v1/cluster/apps/" + runs + "/queue"},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/priority"}, {"GET", "/ws/v1/cluster/apps/" + runs + "/timeouts"},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/timeouts/LIFETIME"},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/appattempts"},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/appattempts/" + attempt},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/appattempts/" + attempt + "/containers"},
      {"GET", "/ws/v1/cluster/apps/" + runs + "/appattempts/" + attempt + "/containers/" + container},
      {"GET", "/ws/v1/cluster/apps/application_1_9999"}, {"GET", "/ws/v1/cluster/apps/nonsense"},
      {"GET", "/ws/v1/cluster/apps/application_1_9999/state"},
      {"GET", "/ws/v1/cluster/nodes"}, {"GET", "/ws/v1/cluster/nodes?states=LOST"}, {"GET", "/ws/v1/cluster/nodes?states=NEVER"},
      {"GET", "/ws/v1/cluster/nodes/" + node}, {"GET", "/ws/v1/cluster/nodes/nowhere:1"},
      {"GET", "/ws/v1/cluster/get-node-labels"}, {"GET", "/ws/v1/cluster/get-node-to-labels"},
      {"GET", "/ws/v1/cluster/nowhere"},
      {"POST", "/ws/v1/cluster/apps/new-application", ""},
      {"POST", "/ws/v1/cluster/apps", "{}"},
      {"PUT", "/ws/v1/cluster/apps/" + failed + "/state", "{\"state\":\"KILLED\"}"},
      {"PUT", "/ws/v1/cluster/apps/" + runs + "/state", "{\"state\":\"RUNNING\"}"},
      {"PUT", "/ws/v1/cluster/apps/" + runs + "/queue", "{\"queue\":\"nowhere\"}"},
      {"PUT", "/ws/v1/cluster/apps/" + runs + "/priority", "{\"priority\":5}"},
      {"PUT", "/ws/v1/cluster/apps/" + runs + "/state", "{\"state\":\"KILLED\"}"},
    };
    try (PrintWriter out = new PrintWriter(new OutputStreamWriter(new FileOutputStream(args[0]), StandardCharsets.UTF_8))) {
      for (String[] call : calls) {
        HttpURLConnection http = (HttpURLConnection) new java.net.URL(base + call[1] + (call[1].contains("?") ? "&" : "?") + "user.name=" + System.getProperty("user.name")).openConnection();
        http.setRequestMethod(call[0]);
        http.setRequestProperty("Accept", "application/json");
        if (call.length > 2) {
          http.setDoOutput(true);
          http.setRequestProperty("Content-Type", "application/json");
          http.getOutputStream().write(call[2].getBytes());
        }
        int code = http.getResponseCode();
        InputStream in = code < 400 ? http.getInputStream() : http.getErrorStream();
        String body = in == null ? "" : new String(in.readAllBytes(), StandardCharsets.UTF_8);
        String name = call[1].replace(failed, "{failed}").replace(runs, "{runs}").replace(killed, "{killed}")
            .replace(attempt, "{attempt}").replace(container, "{container}").replace(node, "{node}");
        out.println(call[0] + "\t" + name + "\t" + code + "\t" + body.replace("\n", " ").replace("\r", " "));
      }
    }
    System.exit(0);
  }
}
