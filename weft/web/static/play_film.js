// A run as columns: every moment of it is reached by applying changes, or taking them back.

const QUEUE = 0;
const MOVE = 1;
const END = 2;
const ASK = 3;
const START = 4;
const PROGRESS = 5;
const STATE = 6;
const NODE = 7;
const UP = new Set(["RUNNING", "DECOMMISSIONING", "UNHEALTHY"]);
const ENDED = new Set(["FINISHED", "FAILED", "KILLED"]);
const POINTS = 700; // of a chart
const NOTHING = [];
const BEFORE = { [NODE]: { state: "", capacity: NOTHING }, [QUEUE]: null, [MOVE]: 0 };
const NEAR_S = 5e-7; // times are told to the microsecond

/** All that changes in a run, in the order in which it happened. */
function changesOf(film) {
  const rows = [];
  for (let row = 0; row < film.start.length; row += 1) {
    rows.push([film.step[row], START, film.start[row], row, 0]);
    if (film.end[row] >= 0) rows.push([film.end_step[row], END, film.end[row], row, 0]);
  }
  for (const [at, step, job, stage, pending] of film.asked)
    rows.push([step, ASK, at, film.firstStage[job] + stage, pending]);
  for (const [at, step, job, finished] of film.progress)
    rows.push([step, PROGRESS, at, job, finished]);
  for (const [at, step, job, state] of film.states) rows.push([step, STATE, at, job, state]);
  for (const [at, step, node, state, capacity] of film.node_states)
    rows.push([step, NODE, at, node, { state, capacity }]);
  for (const [at, step, job, queue] of film.moved) rows.push([step, MOVE, at, job, queue]);
  for (const [at, step, queue, capacity, leaf] of film.queue_states)
    rows.push([step, QUEUE, at, queue, capacity < 0 ? null : { capacity, leaf }]);
  rows.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return rows;
}

/** One run: its columns, and its state at the moment that was sought last. */
export class Film {
  constructor(data, number) {
    Object.assign(this, data);
    this.number = number;
    this.span = Math.max(1e-6, data.last_s - data.first_s);
    this.firstStage = [];
    let stages = 0;
    for (const job of this.jobs) {
      this.firstStage.push(stages);
      stages += job.stages.length;
      job.tasks = job.stages.reduce((sum, stage) => sum + stage.tasks, 0);
      job.jct = job.final === "SUCCEEDED" ? job.finished - job.submitted : -1;
    }
    this.jobOfStage = this.jobs.flatMap((job, i) => job.stages.map(() => i));
    this.grants = []; // rows of decisions, in their order
    for (let row = 0; row < this.start.length; row += 1)
      if (this.stage[row] >= 0) this.grants.push(row);
    this.place = new Map(this.grants.map((row, i) => [row, i]));
    this._prepare(stages);
    this._clear(stages);
    this._chart();
  }

  /** Changes with what was before each, so that they can be taken back. */
  _prepare(stages) {
    const rows = changesOf(this);
    const known = { pending: new Int32Array(stages), finished: [], job: [], last: new Map() };
    this.kind = new Uint8Array(rows.length);
    this.at = new Float64Array(rows.length);
    this.who = new Int32Array(rows.length);
    this.what = new Array(rows.length);
    this.was = new Array(rows.length);
    this.started = new Int32Array(this.start.length); // the change with which a row began
    rows.forEach(([, kind, at, who, what], i) => {
      this.kind[i] = kind;
      this.at[i] = at;
      this.who[i] = who;
      this.what[i] = what;
      if (kind === START) {
        this.started[who] = i;
        const stage = this.stage[who] < 0 ? -1 : this.firstStage[this.job[who]] + this.stage[who];
        this.was[i] = stage >= 0 && known.pending[stage] > 0 ? 1 : 0; // it waited before
        if (this.was[i]) known.pending[stage] -= 1;
      } else if (kind === ASK) {
        this.was[i] = what - known.pending[who];
        known.pending[who] = what;
      } else if (kind === PROGRESS) {
        this.was[i] = known.finished[who] ?? 0;
        known.finished[who] = what;
      } else if (kind === STATE) {
        this.was[i] = known.job[who] ?? "";
        known.job[who] = what;
        if (ENDED.has(what)) {
          const first = this.firstStage[who];
          known.pending.fill(0, first, first + this.jobs[who].stages.length);
        }
      } else if (kind === NODE || kind === QUEUE || kind === MOVE) {
        const key = `${kind},${who}`;
        this.was[i] = known.last.get(key) ?? BEFORE[kind];
        known.last.set(key, what);
      }
    });
  }

  _clear(stages) {
    const jobs = this.jobs.length;
    this.p = 0; // changes that were applied
    this.now = {
      t: this.first_s,
      running: 0,
      waiting: 0,
      done: 0,
      jctSum: 0,
      succeeded: 0,
      open: 0,
      pending: new Int32Array(stages),
      jobState: new Array(jobs).fill(""),
      jobRunning: new Int32Array(jobs),
      jobWaiting: new Int32Array(jobs),
      jobFinished: new Int32Array(jobs),
      nodeState: new Array(this.nodes.length).fill(""),
      capacity: new Array(this.nodes.length).fill(NOTHING),
      queue: new Array(this.queues.length).fill(null), // what each is guaranteed, and if a leaf
      queueOfJob: new Int32Array(jobs),
      total: this.types.map(() => 0),
      onNode: this.nodes.map(() => new Set()),
      held: this.queues.map(() => new Int32Array(this.demands.length)), // containers by demand
    };
  }

  /** Stand at a time of the run, s on its clock: after all that happened by then. */
  seek(t) {
    let low = 0;
    let high = this.at.length;
    while (low < high) {
      const half = (low + high) >> 1;
      if (this.at[half] <= t + NEAR_S) low = half + 1;
      else high = half;
    }
    this._go(low);
    this.now.t = t;
  }

  /** Stand at the start of the run: whatever is there is there, and nothing has been granted. */
  rewind() {
    this.seek(this.first_s);
    if (this.decision >= 0) this._go(this.started[this.grants[0]]);
  }

  /** Stand right after a grant: what came with it at the same time has not happened yet. */
  seekRow(row) {
    this._go(this.started[row] + 1);
    this.now.t = this.start[row];
  }

  /** The last grant so far as its place among all, -1 before the first. */
  get decision() {
    let low = 0;
    let high = this.grants.length;
    while (low < high) {
      const half = (low + high) >> 1;
      if (this.started[this.grants[half]] < this.p) low = half + 1;
      else high = half;
    }
    return low - 1;
  }

  _go(p) {
    while (this.p < p) this._apply(this.p++, 1);
    while (this.p > p) this._apply(--this.p, -1);
  }

  _apply(i, sign) {
    const { now } = this;
    const who = this.who[i];
    switch (this.kind[i]) {
      case START:
        this._hold(who, sign);
        if (this.was[i]) this._wait(this.firstStage[this.job[who]] + this.stage[who], -sign);
        break;
      case END:
        this._hold(who, -sign);
        break;
      case ASK:
        this._wait(who, sign * this.was[i]);
        break;
      case PROGRESS:
        now.jobFinished[who] = sign > 0 ? this.what[i] : this.was[i];
        break;
      case STATE:
        this._job(who, this.was[i], this.what[i], sign);
        break;
      case QUEUE:
        now.queue[who] = sign > 0 ? this.what[i] : this.was[i];
        break;
      case MOVE:
        this._move(who, sign > 0 ? this.what[i] : this.was[i]);
        break;
      default:
        this._node(who, this.was[i], this.what[i], sign);
    }
  }

  _hold(row, sign) {
    const { now } = this;
    const node = now.onNode[this.node[row]];
    if (sign > 0) node.add(row);
    else node.delete(row);
    now.held[now.queueOfJob[this.job[row]]][this.demand[row]] += sign;
    if (this.stage[row] < 0) return;
    now.running += sign;
    now.jobRunning[this.job[row]] += sign;
  }

  _wait(stage, by) {
    const { now } = this;
    now.pending[stage] += by;
    now.waiting += by;
    now.jobWaiting[this.jobOfStage[stage]] += by;
  }

  _job(job, from, to, sign) {
    const { now } = this;
    now.jobState[job] = sign > 0 ? to : from;
    if (from === "") now.open += sign;
    if (!ENDED.has(to) || ENDED.has(from)) return;
    now.open -= sign;
    now.done += sign;
    if (this.jobs[job].jct >= 0) {
      now.succeeded += sign;
      now.jctSum += sign * this.jobs[job].jct;
    }
    // an ended job waits for nothing; taking the end back, it waits for what it did
    const first = this.firstStage[job];
    for (let stage = first; stage < first + this.jobs[job].stages.length; stage += 1) {
      if (sign > 0) {
        this.left ??= new Map();
        this.left.set(stage, now.pending[stage]);
        this._wait(stage, -now.pending[stage]);
      } else this._wait(stage, this.left.get(stage) ?? 0);
    }
  }

  _node(node, from, to, sign) {
    const { now } = this;
    const then = sign > 0 ? to : from;
    now.nodeState[node] = then.state;
    now.capacity[node] = then.capacity;
    for (const [one, by] of [[to, sign], [from, -sign]])
      if (UP.has(one.state))
        one.capacity.forEach((amount, r) => {
          now.total[r] += by * amount;
        });
  }

  /** Have what a job holds count for another queue. */
  _move(job, queue) {
    const { now } = this;
    const before = now.held[now.queueOfJob[job]];
    now.queueOfJob[job] = queue;
    for (const rows of now.onNode)
      for (const row of rows)
        if (this.job[row] === job) {
          before[this.demand[row]] -= 1;
          now.held[queue][this.demand[row]] += 1;
        }
  }

  /** The leaf queues that there are, in the order of their paths. */
  get leaves() {
    const found = [];
    this.now.queue.forEach((state, queue) => state?.leaf && found.push(queue));
    return found.sort((a, b) => (this.queues[a] < this.queues[b] ? -1 : 1));
  }

  /** What a queue (or, without one, everything) holds of each resource, over the cluster's. */
  shares(queue = -1) {
    const { now } = this;
    const held = this.types.map(() => 0);
    const tables = queue < 0 ? now.held : [now.held[queue]];
    for (const table of tables)
      table.forEach((count, demand) => {
        if (count) this.demands[demand].forEach((amount, r) => (held[r] += count * amount));
      });
    return held.map((amount, r) => (now.total[r] > 0 ? amount / now.total[r] : 0));
  }

  /** Values over time for the charts, and the end where the state was before. */
  _chart() {
    const chart = { times: [], use: this.types.map(() => []), top: [], running: [], waiting: [] };
    Object.assign(chart, { open: [], done: [] });
    for (let i = 0; i <= POINTS; i += 1) {
      const t = (this.span * i) / POINTS;
      this.seek(this.first_s + t);
      const shares = this.shares();
      chart.times.push(t);
      shares.forEach((share, r) => chart.use[r].push(share));
      chart.top.push(Math.max(0, ...shares));
      for (const name of ["running", "waiting", "open", "done"]) chart[name].push(this.now[name]);
    }
    this.chart = chart;
    this.rewind();
  }

  /** Words for a container. */
  told(row) {
    const job = this.jobs[this.job[row]];
    if (this.stage[row] < 0) return `${job.name}: its master`;
    const task = this.task[row] >= 0 ? ` task ${this.task[row]}` : "";
    return `${job.name}: ${job.stages[this.stage[row]].name}${task}`;
  }
}
