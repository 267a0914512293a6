// What the terms of each matcher mean; the field's words are in docs/matching.md.

const TERMS = {
  perf: ["perf", "the score that decides: pri × packing (or overbook) − work left"],
  pri: ["pri", "preferred order: the place of the stage's next task in its job's plan, 1 is first"],
  pack: ["packing", "how well the demand fits what is free"],
  overbook: ["overbook", "what it gains by starting on a full node"],
  work: ["work left", "of the job, times its weight: less goes first"],
  pri_score: ["pri_score", "the place by all tasks of the job; over the largest one that waits it is pri"],
  deficit: ["deficit", "what its group is owed by fairness: from the bound on it goes before any perf"],
  bound: ["bound", "the deficit from which a group goes before any perf (matcher.kappa)"],
  eta: ["eta", "weighs remaining work against packing; it is in work left already"],
  alignment: ["alignment", "demand · what is free (Tetris)"],
  dominant_share: ["dominant share", "what the job holds of its scarcest resource: least goes first"],
  containers: ["holds", "containers: fewest goes first"],
  path_s: ["path", "seconds of its longest remaining path: shortest goes first"],
  mix: ["mix", "of remaining work and share: least goes first"],
  priority: ["priority", "of the application: largest goes first"],
  submission: ["submission", "its number: smallest goes first"],
  place: ["place", "in the line"],
};

const QUEUE = "its queue uses";
const USED = "of what it is guaranteed: least goes first, before all terms of jobs";

/** Terms with one column for what each stage's own queue uses, whichever queue that is. */
export function folded(scores) {
  const found = {};
  for (const [name, value] of Object.entries(scores)) {
    const queue = name.startsWith("used of root") ? QUEUE : name;
    found[queue] = value; // queues come topmost first: the leaf's stays
  }
  return found;
}

export const known = (name) => Object.hasOwn(TERMS, name);
export const label = (name) => TERMS[name]?.[0] ?? name.replaceAll("_", " ");
export const meaning = (name) =>
  TERMS[name]?.[1] ?? (name === QUEUE ? USED : name);

export const figure = (value) =>
  Number.isInteger(value) ? String(value) : Math.abs(value) < 1e-12 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
