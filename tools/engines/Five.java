import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.tez.client.TezClient;
import org.apache.tez.dag.api.DAG;
import org.apache.tez.dag.api.Edge;
import org.apache.tez.dag.api.ProcessorDescriptor;
import org.apache.tez.dag.api.TezConfiguration;
import org.apache.tez.dag.api.UserPayload;
import org.apache.tez.dag.api.Vertex;
import org.apache.tez.dag.api.client.DAGStatus;
import org.apache.tez.runtime.api.LogicalInput;
import org.apache.tez.runtime.api.LogicalOutput;
import org.apache.tez.runtime.api.ProcessorContext;
import org.apache.tez.runtime.library.api.KeyValueWriter;
import org.apache.tez.runtime.library.api.KeyValuesReader;
import org.apache.tez.runtime.library.conf.OrderedPartitionedKVEdgeConfig;
import org.apache.tez.runtime.library.partitioner.HashPartitioner;
import org.apache.tez.runtime.library.processor.SimpleProcessor;

/**
 * A DAG of five vertices: numbers and squares, their sums and the numbers' counts by remainder, and
 * what joins those in a file. Usage: Five COUNT SECONDS OUTPUT, where a task takes SECONDS longer.
 */
public class Five {
  static final int KEYS = 97;

  /** A processor with what the command line said. */
  abstract static class Told extends SimpleProcessor {
    final String[] told;

    Told(ProcessorContext context) {
      super(context);
      ByteBuffer payload = context.getUserPayload().getPayload();
      byte[] data = new byte[payload.remaining()];
      payload.duplicate().get(data);
      told = new String(data).split("\n");
    }

    void write(long key, long value) throws Exception {
      for (LogicalOutput output : getOutputs().values()) {
        ((KeyValueWriter) output.getWriter()).write(new LongWritable(key), new LongWritable(value));
      }
    }

    Map<Long, Long> fold(LogicalInput input, boolean count) throws Exception {
      Map<Long, Long> found = new TreeMap<>();
      KeyValuesReader reader = (KeyValuesReader) input.getReader();
      while (reader.next()) {
        long key = ((LongWritable) reader.getCurrentKey()).get();
        for (Object value : reader.getCurrentValues()) {
          found.merge(key, count ? 1 : ((LongWritable) value).get(), Long::sum);
        }
      }
      return found;
    }

    void linger() throws InterruptedException {
      Thread.sleep((long) (1000 * Double.parseDouble(told[1])));
    }
  }

  public static class Source extends Told {
    public Source(ProcessorContext context) {
      super(context);
    }

    @Override
    public void run() throws Exception {
      long count = Long.parseLong(told[0]);
      boolean squares = getContext().getTaskVertexName().equals("squares");
      linger();
      int step = getContext().getVertexParallelism();
      for (long n = getContext().getTaskIndex(); n < count; n += step) {
        write(n % KEYS, squares ? n * n : n);
      }
    }
  }

  public static class Fold extends Told {
    public Fold(ProcessorContext context) {
      super(context);
    }

    @Override
    public void run() throws Exception {
      boolean count = getContext().getTaskVertexName().equals("counts");
      Map<Long, Long> sums = new TreeMap<>();
      for (LogicalInput input : getInputs().values()) {
        fold(input, count).forEach((key, value) -> sums.merge(key, value, Long::sum));
      }
      linger();
      for (Map.Entry<Long, Long> one : sums.entrySet()) {
        write(one.getKey(), one.getValue());
      }
    }
  }

  public static class Join extends Told {
    public Join(ProcessorContext context) {
      super(context);
    }

    @Override
    public void run() throws Exception {
      Map<Long, Long> sums = fold(getInputs().get("sums"), false);
      Map<Long, Long> counts = fold(getInputs().get("counts"), false);
      StringBuilder text = new StringBuilder();
      for (Map.Entry<Long, Long> one : sums.entrySet()) {
        text.append(one.getKey() + " " + one.getValue() + " " + counts.get(one.getKey()) + "\n");
      }
      Path path = new Path(told[2]);
      FileSystem files = path.getFileSystem(new Configuration());
      try (FSDataOutputStream out = files.create(path, true)) {
        out.write(text.toString().getBytes());
      }
    }
  }

  public static void main(String[] told) throws Exception {
    TezConfiguration conf = new TezConfiguration(new Configuration());
    // Containers have no configuration folder, and so another file system where none is named.
    told[2] = FileSystem.get(conf).makeQualified(new Path(told[2])).toString();
    UserPayload payload = UserPayload.create(ByteBuffer.wrap(String.join("\n", told).getBytes()));
    DAG dag = DAG.create("five");
    Vertex numbers = vertex("numbers", Source.class, payload, 4);
    Vertex squares = vertex("squares", Source.class, payload, 3);
    Vertex sums = vertex("sums", Fold.class, payload, 3);
    Vertex counts = vertex("counts", Fold.class, payload, 2);
    Vertex join = vertex("join", Join.class, payload, 1);
    for (Vertex one : new Vertex[] {numbers, squares, sums, counts, join}) {
      dag.addVertex(one);
    }
    Vertex[][] edges = {
      {numbers, sums}, {squares, sums}, {numbers, counts}, {sums, join}, {counts, join},
    };
    for (Vertex[] edge : edges) {
      OrderedPartitionedKVEdgeConfig how =
          OrderedPartitionedKVEdgeConfig.newBuilder(
                  LongWritable.class.getName(),
                  LongWritable.class.getName(),
                  HashPartitioner.class.getName())
              .setFromConfiguration(conf)
              .build();
      dag.addEdge(Edge.create(edge[0], edge[1], how.createDefaultEdgeProperty()));
    }
    TezClient client = TezClient.create("five", conf);
    client.start();
    DAGStatus.State state;
    try {
      state = client.submitDAG(dag).waitForCompletionWithStatusUpdates(null).getState();
    } finally {
      client.stop();
    }
    System.exit(state == DAGStatus.State.SUCCEEDED ? 0 : 1);
  }

  static Vertex vertex(String name, Class<?> kind, UserPayload payload, int tasks) {
    ProcessorDescriptor what = ProcessorDescriptor.create(kind.getName()).setUserPayload(payload);
    return Vertex.create(name, what, tasks);
  }
}
