import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.hadoop.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ApplicationSubmissionContext;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ContainerState;
import org.apache.hadoop.yarn.api.records.ContainerStatus;
import org.apache.hadoop.yarn.api.records.ExecutionType;
import org.apache.hadoop.yarn.api.records.LogAggregationContext;
import org.apache.hadoop.yarn.api.records.NMToken;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.NodeLabel;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.api.records.Token;
import org.apache.hadoop.yarn.conf.ConfigurationProvider;
import org.apache.hadoop.yarn.event.Dispatcher;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.apache.hadoop.yarn.nodelabels.CommonNodeLabelsManager;
import org.apache.hadoop.yarn.nodelabels.NodeLabelsStore;
import org.apache.hadoop.yarn.server.api.ContainerType;
import org.apache.hadoop.yarn.server.resourcemanager.RMContextImpl;
import org.apache.hadoop.yarn.server.resourcemanager.ahs.RMApplicationHistoryWriter;
import org.apache.hadoop.yarn.server.resourcemanager.metrics.NoOpSystemMetricPublisher;
import org.apache.hadoop.yarn.server.resourcemanager.monitor.capacity.ProportionalCapacityPreemptionPolicy;
import org.apache.hadoop.yarn.server.resourcemanager.nodelabels.RMNodeLabelsManager;
import org.apache.hadoop.yarn.server.resourcemanager.placement.ApplicationPlacementContext;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEvent;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEventType;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppState;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttemptMetrics;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttemptState;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.ContainerAllocationExpirer;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerEventType;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerImpl;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerState;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.RMNode;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.RMNodeCleanContainerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.rmnode.UpdatedContainerInfo;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.AbstractYarnScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.Allocation;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ContainerUpdates;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.QueueMetrics;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ContainerAllocationProposal;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ResourceCommitRequest;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.SchedulerContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAttemptAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAttemptRemovedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppRemovedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.ContainerPreemptEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.NodeAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.NodeUpdateSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.security.NMTokenSecretManagerInRM;
import org.apache.hadoop.yarn.server.resourcemanager.security.RMContainerTokenSecretManager;
import org.apache.hadoop.yarn.util.Clock;
import org.apache.hadoop.yarn.util.resource.ResourceUtils;

/**
 * Drives the scheduler of a real Resource Manager through scenarios, in one thread and on a clock of its own, and
 * writes down what it decides. Arguments: pairs of a scenario's file and the file for its answer; after "time" each
 * scenario is run that many times, and only how long its node updates took is told.
 */
public final class Driver {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
  private static final String PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption.";

  public static void main(String[] arguments) throws Exception {
    DefaultMetricsSystem.setMiniClusterMode(true);
    if (arguments[0].equals("time")) {
      for (int run = 0; run < Integer.parseInt(arguments[1]); run++) {
        Driver driver = new Driver(JSON.readTree(new File(arguments[2])));
        driver.run();
        System.out.println(JSON.writeValueAsString(driver.timing()));
      }
      System.exit(0);
    }
    for (int at = 0; at + 1 < arguments.length; at += 2) {
      Map<String, Object> answer;
      try {
        Driver driver = new Driver(JSON.readTree(new File(arguments[at])));
        driver.run();
        answer = driver.answer();
      } catch (Throwable refused) {
        if (System.getenv("WEFT_TRACES") != null) {
          refused.printStackTrace();
        }
        Throwable cause = refused;
        while (cause.getCause() != null) {
          cause = cause.getCause();
        }
        answer = new LinkedHashMap<>();
        answer.put("refused", String.valueOf(cause.getMessage() == null ? cause : cause.getMessage()));
      }
      JSON.writeValue(new File(arguments[at + 1]), answer);
    }
    System.exit(0);
  }

  private final JsonNode scenario;
  private final Configuration conf = new Configuration(false);
  private final Inline dispatcher = new Inline();
  private RMContextImpl context;
  private final Map<String, Machine> machines = new LinkedHashMap<>();
  private final Map<Integer, Job> jobs = new LinkedHashMap<>();
  private final List<Object> grants = new ArrayList<>();
  private final List<Object> places = new ArrayList<>();
  private final List<Object> reservations = new ArrayList<>();
  private final List<Object> reservedAfter = new ArrayList<>();
  private final List<Object> unreserved = new ArrayList<>();
  private final List<Object> preemptions = new ArrayList<>();
  private final List<Object> headroom = new ArrayList<>();
  private final List<Object> rejected = new ArrayList<>();
  private final List<Object> queues = new ArrayList<>();
  // the order in which containers were made, anew where one was reserved before
  private final Map<ContainerId, Long> born = new HashMap<>();
  private long made;
  private final List<Long> nanos = new ArrayList<>();
  private AbstractYarnScheduler<?, ?> scheduler;
  private ProportionalCapacityPreemptionPolicy policy;
  private boolean fair;
  private int round;

  private Driver(JsonNode scenario) {
    this.scenario = scenario;
  }

  // -- the closed loop ---------------------------------------------------------------------------

  private void run() throws Exception {
    prepare();
    for (JsonNode node : scenario.get("nodes")) {
      Machine machine = new Machine(node);
      machines.put(machine.name, machine);
      context.getRMNodes().put(machine.id, machine.node);
      tell(new NodeAddedSchedulerEvent(machine.node));
      if (fair) {
        ((ToldFair) scheduler).order(machine.id);
      }
    }
    for (round = 0; round < scenario.get("rounds").asInt(); round++) {
      for (JsonNode application : scenario.get("applications")) {
        if (application.path("at").asInt() == round) {
          submit(application);
        }
      }
      for (Job job : jobs.values()) {
        if (job.up && !job.over) {
          job.ask();
        }
      }
      if (policy != null) {
        policy.editSchedule();
        dispatcher.drain();
      }
      if (fair) {
        ((ToldFair) scheduler).look();
      }
      for (Machine machine : machines.values()) {
        machine.update();
      }
      for (Job job : jobs.values()) {
        if (!job.over) {
          job.beat();
        }
      }
    }
    scheduler.stop();
  }

  private void prepare() throws Exception {
    // Else the largest node bounds a request only ten seconds after the JVM's start, by its clock.
    conf.set("yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms", "0");
    scenario.get("configuration").fields().forEachRemaining(e -> conf.set(e.getKey(), e.getValue().asText()));
    fair = conf.get("yarn.resourcemanager.scheduler.class", "").contains("Fair");
    if (scenario.has("labels")) {
      conf.setBoolean("yarn.node-labels.enabled", true);
    }
    if (observes()) {
      conf.setBoolean("yarn.resourcemanager.scheduler.monitor.enable", true);
    }
    // threads of its own would decide at moments that no scenario can name
    conf.setBoolean("yarn.scheduler.capacity.schedule-asynchronously.enable", false);
    ResourceUtils.resetResourceTypes(conf);
    QueueMetrics.clearQueueMetrics();
    scheduler = fair ? new ToldFair() : new ToldCapacity();
    // users' groups are read once in a process
    org.apache.hadoop.security.Groups.reset();
    org.apache.hadoop.security.Groups.getUserToGroupsMappingService(conf);
    context = new RMContextImpl(
        dispatcher, new Never(dispatcher), null, null, null, null, new Tokens(conf), new NodeTokens(conf), null, scheduler);
    context.setYarnConfiguration(conf);
    context.setConfigurationProvider(new Given());
    context.setRMApplicationHistoryWriter(new Untold());
    context.setSystemMetricsPublisher(new NoOpSystemMetricPublisher());
    Labels labels = new Labels();
    labels.init(conf);
    labels.start();
    context.setNodeLabelManager(labels);
    labels.setRMContext(context);
    context.setAllocationTagsManager(
        new org.apache.hadoop.yarn.server.resourcemanager.scheduler.constraint.AllocationTagsManager(context));
    if (scenario.has("labels")) {
      List<NodeLabel> known = new ArrayList<>();
      scenario.get("labels").fields().forEachRemaining(e ->
          known.add(NodeLabel.newInstance(e.getKey(), e.getValue().asBoolean())));
      labels.addToCluserNodeLabels(known);
      for (JsonNode node : scenario.get("nodes")) {
        if (node.has("label")) {
          labels.addLabelsToNode(Collections.singletonMap(
              NodeId.newInstance(node.get("name").asText(), 1), Collections.singleton(node.get("label").asText())));
        }
      }
    }
    if (fair) {
      File file = File.createTempFile("allocations", ".xml");
      file.deleteOnExit();
      java.nio.file.Files.write(file.toPath(), scenario.path("allocations").asText("<allocations/>").getBytes());
      conf.set("yarn.scheduler.fair.allocation.file", file.getAbsolutePath());
    }
    if (!fair) {
      ((org.apache.hadoop.conf.Configurable) scheduler).setConf(conf);
    }
    context.setQueuePlacementManager(
        new org.apache.hadoop.yarn.server.resourcemanager.placement.PlacementManager());
    scheduler.setRMContext(context);
    scheduler.init(conf);
    if (observes() && !fair) {
      policy = new ProportionalCapacityPreemptionPolicy(context, (CapacityScheduler) scheduler, new Rounds());
    }
  }

  private boolean observes() {
    boolean found = conf.getBoolean("yarn.resourcemanager.scheduler.monitor.enable", false);
    for (Map.Entry<String, String> property : conf) {
      found |= property.getKey().startsWith(PREEMPTION);
    }
    return found;
  }

  private void tell(SchedulerEvent event) {
    scheduler.handle(event);
    dispatcher.drain();
  }

  private void submit(JsonNode told) {
    Job job = new Job(told);
    jobs.put(job.number, job);
    try {
      job.checkMaster();
    } catch (org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException refused) {
      // RMAppManager does so before the scheduler hears of an application
      job.over = true;
      queues.add(row(job.number, ""));
      rejected.add(row(round, job.number, refused.getMessage()));
      return;
    }
    context.getRMApps().put(job.app, job.record);
    String user = told.path("user").asText("u");
    int priority;
    try {
      // RMAppManager does so: by default, no priority is above 0
      priority = scheduler.checkAndGetApplicationPriority(job.submission.getPriority(),
          org.apache.hadoop.security.UserGroupInformation.createRemoteUser(user), job.submission.getQueue(), job.app)
          .getPriority();
      job.submission.setPriority(Priority.newInstance(priority));
    } catch (org.apache.hadoop.yarn.exceptions.YarnException refused) {
      throw new IllegalStateException(refused);
    }
    ApplicationPlacementContext place =
        fair ? new ApplicationPlacementContext(job.submission.getQueue()) : null;
    if (scenario.path("places").asBoolean()) {
      try {
        // RMAppManager does so before the scheduler hears of an application
        place = context.getQueuePlacementManager().placeApplication(job.submission, user);
        if (place != null) {
          job.submission.setQueue(place.getFullQueuePath());
        }
      } catch (org.apache.hadoop.yarn.exceptions.YarnException refused) {
        job.over = true;
        queues.add(row(job.number, ""));
        return;
      }
    }
    tell(new AppAddedSchedulerEvent(user, job.submission, false, Priority.newInstance(priority), place));
    queues.add(row(job.number, job.over ? "" : queueOf(job)));
    if (job.over) {
      return;
    }
    tell(new AppAttemptAddedSchedulerEvent(job.attempt, false));
    // a fair order goes by the time of a start before all that is left equal: no two have the same
    long now = System.currentTimeMillis();
    while (System.currentTimeMillis() == now) {
      Thread.onSpinWait();
    }
    if (job.first != null) {
      allocate(job, new ArrayList<>(job.first));
    } else {
      job.up = true;
    }
  }

  private String queueOf(Job job) {
    Object queue = scheduler.getSchedulerApplications().get(job.app).getQueue();
    return queue instanceof org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CSQueue
        ? ((org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CSQueue) queue).getQueuePath()
        : ((org.apache.hadoop.yarn.server.resourcemanager.scheduler.Queue) queue).getQueueName();
  }

  private static ResourceRequest request(int priority, String place, JsonNode of, int count, boolean relax) {
    Resource size = Resource.newInstance(of.get("mem").asLong(), of.path("vcores").asInt(1));
    ResourceRequest made =
        ResourceRequest.newInstance(Priority.newInstance(priority), place, size, count, relax);
    // YARN refuses a label beside a place, and sets the queue's default one where none is said
    if (of.has("label") && place.equals("*")) {
      made.setNodeLabelExpression(of.get("label").asText());
    }
    return made;
  }

  private Allocation allocate(Job job, List<ResourceRequest> asks) {
    Allocation found = scheduler.allocate(
        job.attempt, asks, null, Collections.emptyList(), null, null, new ContainerUpdates());
    dispatcher.drain();
    return found;
  }

  // -- what is told ------------------------------------------------------------------------------

  private Map<String, Object> answer() {
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("grants", grants);
    all.put("places", places);
    all.put("reservations", reservations);
    all.put("reserved_after", reservedAfter);
    all.put("unreserved", unreserved);
    all.put("preemptions", preemptions);
    all.put("headroom", headroom);
    all.put("rejected", rejected);
    all.put("queues", queues);
    return all;
  }

  private Map<String, Object> timing() {
    List<Long> sorted = new ArrayList<>(nanos);
    Collections.sort(sorted);
    long sum = 0;
    for (long one : sorted) {
      sum += one;
    }
    Runtime runtime = Runtime.getRuntime();
    System.gc();
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("beats", sorted.size());
    all.put("grants", grants.size());
    all.put("mean_us", sum / 1e3 / sorted.size());
    all.put("median_us", sorted.get(sorted.size() / 2) / 1e3);
    all.put("p99_us", sorted.get(sorted.size() * 99 / 100) / 1e3);
    all.put("heap_mb", (runtime.totalMemory() - runtime.freeMemory()) / 1e6);
    return all;
  }

  private List<Object> row(Object... values) {
    List<Object> all = new ArrayList<>();
    Collections.addAll(all, values);
    return all;
  }

  private void granted(RMContainer container) {
    int app = container.getApplicationAttemptId().getApplicationId().getId();
    String node = container.getAllocatedNode().getHost();
    int priority = container.getAllocatedPriority().getPriority();
    Resource size = container.getAllocatedResource();
    grants.add(row(round, node, app, priority, size.getMemorySize(), size.getVirtualCores()));
    jobs.get(app).granted(container, machines.get(node), priority);
  }

  private final class ToldCapacity extends CapacityScheduler {
    @Override
    public boolean tryCommit(
        Resource cluster, @SuppressWarnings("rawtypes") ResourceCommitRequest told, boolean updatesPending) {
      ResourceCommitRequest<?, ?> request = told;
      List<Object> released = new ArrayList<>();
      RMContainer first = null;
      boolean reserved = false;
      if (request.anythingAllocatedOrReserved()) {
        ContainerAllocationProposal<?, ?> proposal = request.getFirstAllocatedOrReservedContainer();
        first = proposal.getAllocatedOrReservedContainer().getRmContainer();
        reserved = proposal.getAllocatedOrReservedContainer().getSchedulerNode().getReservedContainer() == first;
        for (SchedulerContainer<?, ?> one : proposal.getToRelease()) {
          RMContainer freed = one.getRmContainer();
          released.add(row(round, freed.getReservedNode().getHost(),
              freed.getApplicationAttemptId().getApplicationId().getId(),
              freed.getReservedSchedulerKey().getPriority().getPriority()));
        }
      }
      boolean done = super.tryCommit(cluster, told, updatesPending);
      if (done && first != null) {
        unreserved.addAll(released);
        if (!request.getContainersToAllocate().isEmpty()) {
          places.add(request.getFirstAllocatedOrReservedContainer().getAllocationLocalityType().ordinal());
          granted(first);
        } else if (!reserved) {
          reservations.add(row(round, first.getReservedNode().getHost(),
              first.getApplicationAttemptId().getApplicationId().getId(),
              first.getReservedSchedulerKey().getPriority().getPriority()));
        }
      }
      return done;
    }

    @Override
    public void markContainerForPreemption(ApplicationAttemptId attempt, RMContainer container) {
      preempted("PREEMPT_CONTAINER", container);
      super.markContainerForPreemption(attempt, container);
    }

    @Override
    public void markContainerForKillable(RMContainer container) {
      preempted("KILL_CONTAINER", container);
      super.markContainerForKillable(container);
    }
  }

  /**
   * The Fair Scheduler on the rounds' clock. Its thread for preemption is made and never started: what that thread does
   * with one starved application after the other is called after each update, then what is due is killed, as its timer
   * would do. A node tells its containers in the order of a hash table; here it is that of their ids.
   */
  private final class ToldFair extends FairScheduler {
    private final TreeMap<Long, List<RMContainer>> due = new TreeMap<>();
    private Thread thread;

    ToldFair() {
      setClock(new Rounds());
    }

    @Override
    protected void createPreemptionThread() {
      super.createPreemptionThread();
      thread = (Thread) of(FairScheduler.class, this, "preemptionThread");
    }

    void order(NodeId id) {
      set(SchedulerNode.class, getNodeTracker().getNode(id), "launchedContainers", new TreeMap<>());
    }

    @SuppressWarnings("unchecked")
    void look() throws Exception {
      update();
      if (thread == null) {
        return;
      }
      Class<?> kind = thread.getClass();
      long wait = (long) of(kind, thread, "warnTimeBeforeKill");
      long pause = (long) of(kind, thread, "delayBeforeNextStarvationCheck");
      Object context = of(kind, thread, "context");
      Object starved = of(context.getClass(), context, "starvedApps");
      Queue<Object> line = (Queue<Object>) of(starved.getClass(), starved, "appsToProcess");
      while (!line.isEmpty()) {
        Object app = line.poll();
        List<RMContainer> chosen =
            (List<RMContainer>) called(kind, thread, "identifyContainersToPreempt", app.getClass(), app);
        for (RMContainer one : chosen) {
          preempted("PREEMPT_CONTAINER", one);
        }
        due.computeIfAbsent(getClock().getTime() + wait, at -> new ArrayList<>()).addAll(chosen);
        called(app.getClass(), app, "preemptionTriggered", long.class, pause);
      }
      while (!due.isEmpty() && due.firstKey() <= getClock().getTime()) {
        for (RMContainer one : due.pollFirstEntry().getValue()) {
          preempted("KILL_CONTAINER", one);
          completedContainer(one, SchedulerUtils.createPreemptedContainerStatus(
              one.getContainerId(), SchedulerUtils.PREEMPTED_CONTAINER), RMContainerEventType.KILL);
        }
      }
      dispatcher.drain();
    }
  }

  private static Object of(Class<?> kind, Object one, String name) {
    try {
      Field field = kind.getDeclaredField(name);
      field.setAccessible(true);
      return field.get(one);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void set(Class<?> kind, Object one, String name, Object value) {
    try {
      Field field = kind.getDeclaredField(name);
      field.setAccessible(true);
      field.set(one, value);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private static Object called(Class<?> kind, Object one, String name, Class<?> takes, Object value) throws Exception {
    Method method = kind.getDeclaredMethod(name, takes);
    method.setAccessible(true);
    return method.invoke(one, value);
  }

  private void preempted(String what, RMContainer container) {
    if (!container.getState().equals(RMContainerState.ACQUIRED)
        && !container.getState().equals(RMContainerState.RUNNING)) {
      return;
    }
    preemptions.add(row(round, what, container.getAllocatedNode().getHost(),
        container.getApplicationAttemptId().getApplicationId().getId(),
        container.getAllocatedPriority().getPriority()));
  }

  // -- applications and nodes --------------------------------------------------------------------

  private final class Job {
    final JsonNode told;
    final int number;
    final ApplicationId app;
    final ApplicationAttemptId attempt;
    final RMApp record;
    final ApplicationSubmissionContext submission;
    final List<ResourceRequest> first;
    final Set<Integer> sent = new HashSet<>();
    final Set<Integer> taken = new HashSet<>();
    final Map<Integer, Integer> lasts = new HashMap<>();
    Container master;
    boolean up;
    boolean over;

    Job(JsonNode told) {
      this.told = told;
      number = told.get("id").asInt();
      app = ApplicationId.newInstance(0L, number);
      attempt = ApplicationAttemptId.newInstance(app, 1);
      submission = org.apache.hadoop.yarn.util.Records.newRecord(
          ApplicationSubmissionContext.class);
      submission.setApplicationId(app);
      submission.setQueue(told.path("queue").asText("default"));
      submission.setApplicationName(told.path("name").asText("app"));
      submission.setUnmanagedAM(!told.has("am"));
      submission.setPriority(Priority.newInstance(told.path("priority").asInt(0)));
      first = told.has("am") ? Collections.singletonList(request(0, "*", told.get("am"), 1, true)) : null;
      RMAppAttemptMetrics metrics = new RMAppAttemptMetrics(attempt, context);
      RMAppAttempt current = like(RMAppAttempt.class, (proxy, method, values) -> {
        switch (method.getName()) {
          case "getMasterContainer": return master;
          case "getAppAttemptId": return attempt;
          case "getRMAppAttemptMetrics": return metrics;
          case "getSubmissionContext": return submission;
          default: return nothing(method);
        }
      });
      record = like(RMApp.class, (proxy, method, values) -> {
        switch (method.getName()) {
          case "getApplicationId": return app;
          case "getApplicationSubmissionContext": return submission;
          case "getCurrentAppAttempt": return current;
          case "getAMResourceRequests": return first;
          case "getUser": return told.path("user").asText("u");
          case "getApplicationPriority": return submission.getPriority();
          case "getState": return RMAppState.RUNNING;
          default: return nothing(method);
        }
      });
    }

    /** As RMAppManager does: a master gets the queue's default label, and is refused where it is too large. */
    void checkMaster() throws org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException {
      if (first == null) {
        return;
      }
      ResourceRequest master = first.get(0);
      String label = conf.get("yarn.resourcemanager.node-labels.am.default-node-label-expression");
      if (master.getNodeLabelExpression() == null || master.getNodeLabelExpression().isEmpty()) {
        master.setNodeLabelExpression(label == null || label.isEmpty() ? null : label);
      }
      Resource most = scheduler.getMaximumResourceCapability(submission.getQueue());
      SchedulerUtils.normalizeAndValidateRequest(
          master, most, submission.getQueue(), false, context, null, scenario.has("labels"));
      master.setCapability(scheduler.getNormalizedResource(master.getCapability(), most));
    }

    void ask() {
      List<ResourceRequest> all = new ArrayList<>();
      Set<Integer> asked = new HashSet<>();
      int at = 0;
      for (JsonNode ask : told.get("asks")) {
        if (!sent.contains(at) && round >= ask.path("at").asInt(told.path("at").asInt())) {
          sent.add(at);
          asked.add(at);
          int priority = ask.path("pri").asInt(1);
          int count = ask.path("count").asInt(1);
          boolean relax = ask.path("relax").asBoolean(true);
          lasts.put(priority, ask.path("dur").asInt(1 << 29));
          for (String kind : new String[] {"hosts", "racks"}) {
            if (ask.has(kind)) {
              boolean named = kind.equals("hosts");
              ask.get(kind).fields().forEachRemaining(e ->
                  all.add(request(priority, e.getKey(), ask, e.getValue().asInt(), named || relaxedRack(ask, relax))));
            }
          }
          all.add(request(priority, "*", ask, count, relax));
        }
        at++;
      }
      if (all.isEmpty()) {
        return;
      }
      String queue = queueOf(this);
      try {
        // ApplicationMasterService does so: what a queue cannot have makes the whole call fail
        org.apache.hadoop.yarn.server.resourcemanager.RMServerUtils.normalizeAndValidateRequests(
            all, scheduler.getMaximumResourceCapability(queue), queue, scheduler, context, scenario.has("labels"));
      } catch (org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException refused) {
        return;
      }
      taken.addAll(asked);
      allocate(this, all);
    }

    boolean relaxedRack(JsonNode ask, boolean relax) {
      return relax || !ask.has("hosts");
    }

    void granted(RMContainer container, Machine machine, int priority) {
      if (priority == 0 && told.has("am") && master == null) {
        master = container.getContainer();
        ((RMContainerImpl) container).setAMContainer(true);
        machine.runs.add(new Object[] {1 << 30, container.getContainerId()});
        machine.begins(container.getContainerId());
        return;
      }
      machine.runs.add(new Object[] {round + lasts.get(priority), container.getContainerId()});
      machine.begins(container.getContainerId());
    }

    void beat() {
      Allocation found = allocate(this, new ArrayList<>());
      if (scenario.path("headroom").asBoolean() || scenario.path("tells_headroom").asBoolean()) {
        Resource limit = found.getResourceLimit();
        headroom.add(row(round, number, limit.getMemorySize(), limit.getVirtualCores()));
      }
      if (master != null) {
        up = true;
      }
      if (told.has("until") && round >= told.get("until").asInt() && up) {
        over = true;
        if (master == null) {
          removed();
        } else {
          finish();
        }
      }
    }

    /** A master that is done gives everything back, asks of calls that failed apart; its own container ends with its node's next heartbeat. */
    void finish() {
      List<ResourceRequest> none = new ArrayList<>();
      int at = 0;
      for (JsonNode ask : told.get("asks")) {
        if (taken.contains(at++)) {
          for (String kind : new String[] {"hosts", "racks"}) {
            ask.path(kind).fieldNames().forEachRemaining(e -> none.add(request(ask.path("pri").asInt(1), e, ask, 0, true)));
          }
          none.add(request(ask.path("pri").asInt(1), "*", ask, 0, ask.path("relax").asBoolean(true)));
        }
      }
      List<ContainerId> held = new ArrayList<>();
      for (RMContainer one : scheduler.getSchedulerApplications().get(app).getCurrentAppAttempt().getLiveContainers()) {
        if (!one.getContainerId().equals(master.getId())) {
          held.add(one.getContainerId());
        }
      }
      try {
        org.apache.hadoop.yarn.server.resourcemanager.RMServerUtils.normalizeAndValidateRequests(
            none, scheduler.getMaximumResourceCapability(queueOf(this)), queueOf(this), scheduler, context,
            scenario.has("labels"));
      } catch (org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException refused) {
        none.clear();
      }
      scheduler.allocate(attempt, none, null, held, null, null, new ContainerUpdates());
      dispatcher.drain();
      Machine machine = machines.get(master.getNodeId().getHost());
      machine.runs.removeIf(run -> run[1].equals(master.getId()));
      machine.runs.add(new Object[] {round + 1, master.getId()});
    }

    /** As RMAppAttemptImpl does once the master's container has ended, or at once without one. */
    void removed() {
      tell(new AppAttemptRemovedSchedulerEvent(attempt, RMAppAttemptState.FINISHED, false));
      tell(new AppRemovedSchedulerEvent(app, RMAppState.FINISHED));
    }
  }

  private final class Machine {
    final String name;
    final NodeId id;
    final RMNode node;
    final List<Object[]> runs = new ArrayList<>();
    final Set<ContainerId> stops = new HashSet<>();
    private final Set<ContainerId> ordered = new HashSet<>();
    private final List<ContainerStatus> fresh = new ArrayList<>();
    private final List<ContainerStatus> ended = new ArrayList<>();
    private final Set<ContainerId> before = new HashSet<>();

    Machine(JsonNode told) {
      name = told.get("name").asText();
      id = NodeId.newInstance(name, 1);
      Resource capability = Resource.newInstance(told.get("mem").asLong(), told.get("vcores").asInt());
      Set<String> labels =
          told.has("label") ? Collections.singleton(told.get("label").asText()) : Collections.emptySet();
      node = like(RMNode.class, (proxy, method, values) -> {
        switch (method.getName()) {
          case "getNodeID": return id;
          case "getHostName": return name;
          case "getRackName": return told.path("rack").asText("/default-rack");
          case "getNodeAddress": return name + ":1";
          case "getHttpAddress": return name + ":2";
          case "getTotalCapability": return capability;
          case "getAllocatedContainerResource": return Resource.newInstance(0, 0);
          case "getState": return NodeState.RUNNING;
          case "getNodeLabels": return labels;
          case "getRMContext": return context;
          case "pullContainerUpdates":
            List<ContainerStatus> begun = new ArrayList<>(fresh);
            List<ContainerStatus> over = new ArrayList<>(ended);
            fresh.clear();
            ended.clear();
            return Collections.singletonList(new UpdatedContainerInfo(begun, over, new ArrayList<>()));
          case "hashCode": return name.hashCode();
          case "equals": return proxy == values[0];
          case "toString": return name;
          default: return nothing(method);
        }
      });
    }

    void begins(ContainerId container) {
      fresh.add(ContainerStatus.newInstance(container, ContainerState.RUNNING, "", 0));
    }

    void update() {
      List<Object[]> left = new ArrayList<>();
      List<Job> finished = new ArrayList<>();
      for (Object[] run : runs) {
        if ((int) run[0] <= round || ordered.contains(run[1])) {
          Job job = jobs.get(((ContainerId) run[1]).getApplicationAttemptId().getApplicationId().getId());
          if (job.over && job.master != null && run[1].equals(job.master.getId())) {
            finished.add(job);
          }
          ended.add(ContainerStatus.newInstance((ContainerId) run[1], ContainerState.COMPLETE, "", 0));
        } else {
          left.add(run);
        }
      }
      runs.clear();
      runs.addAll(left);
      // a node hears of what it has to stop in the answer to a heartbeat, and tells with the next
      ordered.clear();
      ordered.addAll(stops);
      stops.clear();
      NodeUpdateSchedulerEvent event = new NodeUpdateSchedulerEvent(node);
      // of this thread alone: a busy machine takes it off the processor for longer than a heartbeat lasts
      long start = THREADS.getCurrentThreadCpuTime();
      scheduler.handle(event);
      nanos.add(THREADS.getCurrentThreadCpuTime() - start);
      dispatcher.drain();
      for (Job job : finished) {
        job.removed();
      }
      SchedulerNode known = scheduler.getNodeTracker().getNode(id);
      if (fair) {
        List<RMContainer> now = known.getCopiedListOfRunningContainers();
        now.sort((a, b) -> Long.compare(born.get(a.getContainerId()), born.get(b.getContainerId())));
        Set<ContainerId> all = new HashSet<>();
        for (RMContainer one : now) {
          all.add(one.getContainerId());
          if (!before.contains(one.getContainerId())) {
            Driver.this.granted(one);
          }
        }
        before.clear();
        before.addAll(all);
      }
      RMContainer kept = known.getReservedContainer();
      if (kept != null) {
        reservedAfter.add(row(round, name, kept.getApplicationAttemptId().getApplicationId().getId(),
            kept.getReservedSchedulerKey().getPriority().getPriority()));
      }
    }
  }

  // -- what stands in for the rest of a Resource Manager ------------------------------------------

  @SuppressWarnings("unchecked")
  private static <T> T like(Class<T> kind, InvocationHandler answers) {
    return (T) Proxy.newProxyInstance(Driver.class.getClassLoader(), new Class<?>[] {kind}, answers);
  }

  private static Object nothing(Method method) {
    Class<?> kind = method.getReturnType();
    if (kind == boolean.class) {
      return false;
    }
    if (kind == int.class) {
      return 0;
    }
    if (kind == long.class) {
      return 0L;
    }
    if (kind == float.class) {
      return 0f;
    }
    if (kind == Map.class) {
      return new HashMap<>();
    }
    if (kind == Set.class) {
      return new HashSet<>();
    }
    return kind == List.class || kind == Collection.class ? new ArrayList<>() : null;
  }

  /** Keeps events until the call that made them is over; those of applications are only looked at. */
  private final class Inline implements Dispatcher, EventHandler<Event> {
    private final ArrayDeque<Event> waiting = new ArrayDeque<>();

    @Override
    @SuppressWarnings("unchecked")
    public EventHandler<Event> getEventHandler() {
      return this;
    }

    @Override
    public void register(Class<? extends Enum> kind, EventHandler handler) {}

    @Override
    public void handle(Event event) {
      waiting.add(event);
    }

    void drain() {
      while (!waiting.isEmpty()) {
        Event event = waiting.poll();
        if (event instanceof SchedulerEvent) {
          scheduler.handle((SchedulerEvent) event);
        } else if (event instanceof RMNodeCleanContainerEvent) {
          RMNodeCleanContainerEvent stop = (RMNodeCleanContainerEvent) event;
          machines.get(stop.getNodeId().getHost()).stops.add(stop.getContainerId());
        } else if (event instanceof RMAppEvent && event.getType() == RMAppEventType.APP_REJECTED) {
          int number = ((RMAppEvent) event).getApplicationId().getId();
          jobs.get(number).over = true;
          rejected.add(row(round, number, ((RMAppEvent) event).getDiagnosticMsg()));
        }
      }
    }
  }

  private final class Rounds implements Clock {
    @Override
    public long getTime() {
      return round * 1000L;
    }
  }

  /** The queues' file is empty: a scenario says all in one. */
  private static final class Given extends ConfigurationProvider {
    @Override
    public InputStream getConfigurationInputStream(Configuration conf, String name) {
      return new ByteArrayInputStream("<configuration/>".getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void initInternal(Configuration conf) {}

    @Override
    public void closeInternal() {}
  }

  /** Tokens look up the addresses of nodes, and these are names only. */
  private static final class Tokens extends RMContainerTokenSecretManager {
    Tokens(Configuration conf) {
      super(conf);
    }

    @Override
    public Token createContainerToken(
        ContainerId container, int version, NodeId node, String user, Resource size, Priority priority, long time,
        LogAggregationContext logs, String label, ContainerType type, ExecutionType execution, long allocation,
        Set<String> tags) {
      return Token.newInstance(new byte[0], "", new byte[0], "");
    }
  }

  private static final class NodeTokens extends NMTokenSecretManagerInRM {
    NodeTokens(Configuration conf) {
      super(conf);
    }

    @Override
    public NMToken createAndGetNMToken(String user, ApplicationAttemptId attempt, Container container) {
      return null;
    }
  }

  private static final class Never extends ContainerAllocationExpirer {
    Never(Dispatcher dispatcher) {
      super(dispatcher);
    }
  }

  private final class Untold extends RMApplicationHistoryWriter {
    @Override
    public void containerStarted(RMContainer container) {
      if (container.getContainerId() != null) {
        born.put(container.getContainerId(), made++);
      }
    }

    @Override
    public void containerFinished(RMContainer container) {}
  }

  private static final class Labels extends RMNodeLabelsManager {
    @Override
    protected void initNodeLabelStore(Configuration conf) {
      store = like(NodeLabelsStore.class, (proxy, method, values) -> null);
    }

    @Override
    protected void initDispatcher(Configuration conf) {}

    @Override
    protected void startDispatcher() {}

    @Override
    protected void stopDispatcher() {}
  }
}
