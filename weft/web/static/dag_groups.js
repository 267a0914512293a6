// Many stages as few boxes: equal siblings become one, then chains. Pure: no elements here.

const MANY = 40; // so many boxes can be read at once; more are grouped

/** A stage's name without the number that tells it from its siblings. */
export const stem = (name) => name.replace(/([ _.-]*(ID|id|#)?[0-9]+)+$/, "") || name;

/** The longest path from a root to each node; parents and children are lists of numbers. */
export function longest(parents, children) {
  const layer = parents.map(() => 0);
  const missing = parents.map((list) => list.length);
  const ready = missing.flatMap((n, i) => (n === 0 ? [i] : []));
  while (ready.length) {
    const node = ready.pop();
    for (const child of children[node]) {
      layer[child] = Math.max(layer[child], layer[node] + 1);
      missing[child] -= 1;
      if (missing[child] === 0) ready.push(child);
    }
  }
  return layer;
}

export function childrenOf(parents) {
  const children = parents.map(() => []);
  parents.forEach((list, child) => {
    for (const parent of list) children[parent].push(child);
  });
  return children;
}

/**
 * Boxes of a job: {key, name, kind: "stage" | "siblings" | "chain", members: positions, parents:
 * [[box, edge kind]]}. `opened` are keys of groups that are shown with what is in them; `group`
 * false leaves every stage alone. Merging keeps the graph without cycles: siblings lie in one layer,
 * and a chain has one way in and one out.
 */
export function boxes(stages, { group = true, opened = new Set() } = {}) {
  const at = new Map(stages.map((stage, i) => [stage.name, i]));
  const parents = stages.map((stage) => stage.parents.map((p) => at.get(p.stage)));
  if (!group || stages.length <= MANY) {
    const parts = stages.map((stage, i) => alone(stage.name, i));
    return link(parts, stages, parents);
  }
  const layer = longest(parents, childrenOf(parents));
  const keyOf = (i) => `${layer[i]}|${stem(stages[i].name)}`;
  const closed = new Set();
  let [all, shown] = [closed, opened].map((open) =>
    link(siblings(stages, keyOf, open), stages, parents),
  );
  // how much is grouped depends on the job alone, not on what was opened
  for (const join of [chains, beside]) {
    if (all.length <= MANY) break;
    [all, shown] = [join(all, stages, parents, closed), join(shown, stages, parents, opened)];
  }
  return shown;
}

const alone = (name, i, of = "") => ({ key: `=${name}`, name, kind: "stage", members: [i], of });

function siblings(stages, keyOf, opened) {
  const found = new Map();
  stages.forEach((_, i) => {
    const key = keyOf(i);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(i);
  });
  return [...found].flatMap(([key, members]) =>
    members.length > 1 && !opened.has(key)
      ? [{ key, name: stem(stages[members[0]].name), kind: "siblings", members }]
      : members.map((i) => alone(stages[i].name, i, members.length > 1 ? key : "")),
  );
}

/** The boxes with the edges between them; several of one pair are one, of the strictest kind. */
function link(parts, stages, parents) {
  const boxOf = new Map(parts.flatMap((part, b) => part.members.map((i) => [i, b])));
  return parts.map((part, b) => {
    const edges = new Map();
    for (const i of part.members) {
      parents[i].forEach((parent, number) => {
        const from = boxOf.get(parent);
        const kind = stages[i].parents[number].edge;
        if (from !== b)
          edges.set(from, edges.has(from) && edges.get(from) !== kind ? "all_to_all" : kind);
      });
    }
    return { ...part, parents: [...edges] };
  });
}

/** Join boxes that follow one another, one way in and one out. */
function chains(linked, stages, parents, opened) {
  const out = linked.map(() => []);
  linked.forEach((box, b) => {
    for (const [from] of box.parents) out[from].push(b);
  });
  const next = linked.map((_, b) =>
    out[b].length === 1 && linked[out[b][0]].parents.length === 1 && !linked[b].of ? out[b][0] : -1,
  );
  const follows = new Set(next.filter((b) => b >= 0));
  const parts = [];
  linked.forEach((box, b) => {
    if (follows.has(b)) return;
    const run = [box];
    for (let one = next[b]; one >= 0; one = next[one]) run.push(linked[one]);
    const key = `>${run.map((part) => part.key).join(">")}`;
    if (run.length > 1 && !opened.has(key)) {
      parts.push({
        key,
        name: `${run[0].name} … ${run.at(-1).name}`,
        kind: "chain",
        steps: run.map((part) => part.name),
        members: run.flatMap((part) => part.members),
      });
    } else {
      parts.push(...run.map((part) => (run.length > 1 ? { ...part, of: part.of || key } : part)));
    }
  });
  return link(parts, stages, parents);
}

/** Join boxes that wait for the same ones and are waited for by the same ones. */
function beside(linked, stages, parents, opened) {
  const out = linked.map(() => []);
  linked.forEach((box, b) => {
    for (const [from] of box.parents) out[from].push(b);
  });
  const found = new Map();
  linked.forEach((box, b) => {
    const around = [box.parents.map(([from]) => from), out[b]].map((list) => list.sort().join());
    const key = box.of ? box.key : around.join("|"); // what was opened stays open
    found.set(key, [...(found.get(key) ?? []), box]);
  });
  const parts = [...found.values()].flatMap((list) => {
    const key = `&${list.map((box) => box.key).join("&")}`;
    if (list.length < 3) return list;
    if (opened.has(key)) return list.map((box) => ({ ...box, of: box.of || key }));
    return [
      {
        key,
        name: `${list[0].name} and ${list.length - 1} more`,
        kind: "beside",
        steps: list.map((box) => box.name),
        members: list.flatMap((box) => box.members),
      },
    ];
  });
  return link(parts, stages, parents);
}

/** A box's counts: those of its stages together. */
export function counted(box, stages) {
  const sum = { tasks: 0, finished: 0, running: 0, pending: 0, failed: 0, over: 0 };
  for (const i of box.members) for (const key of Object.keys(sum)) sum[key] += stages[i][key] ?? 0;
  return sum;
}
