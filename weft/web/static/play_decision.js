// What the scheduler had to choose from: the candidates of one decision, with the scores of each.

import { jobColour } from "./play_cluster.js";
import { figure, folded, known, label, meaning } from "./terms.js";
import { amount, count, h, percent, plural, read, resourceName, scrolling } from "./util.js";

const KEPT = 600;
const LISTED = 12; // stages that were ruled out, before the rest is counted
const SUMMANDS = new Set(["pri", "pack", "work"]); // without one of them perf cannot be added up

/** The panel of one run. */
export class DecisionPanel {
  constructor(film, step) {
    this.film = film;
    this.known = new Map();
    this.wanted = -1;
    this.shown = -2;
    this.title = h("h2", null, "Decision");
    this.body = h("div", { class: "decision" });
    this.status = h("p", { class: "hide", role: "status" });
    this.element = h(
      "section",
      { class: "panel", "aria-label": `Decision of ${film.name}` },
      h(
        "header",
        null,
        this.title,
        h("span", { class: "grow" }),
        h("button", { type: "button", class: "button small", onclick: () => step(-1) }, "Previous"),
        h("button", { type: "button", class: "button small", onclick: () => step(1) }, "Next"),
      ),
      this.body,
      this.status,
    );
  }

  /** Show the last decision of the moment; while the run plays only what is known already. */
  show(playing) {
    const { film } = this;
    const place = film.decision;
    const row = place < 0 ? -1 : film.grants[place];
    if (row === this.shown) return;
    this.title.textContent =
      place < 0
        ? `Before the first of ${plural(film.grants.length, "decision")}`
        : `Decision ${count(place + 1)} of ${count(film.grants.length)}`;
    if (row < 0) {
      this.shown = row;
      this.body.replaceChildren(h("p", { class: "sub" }, "Nothing has been placed yet."));
      return;
    }
    const known = this.known.get(row);
    if (known) this._draw(row, known, playing);
    else if (!playing || !this.busy) this._load(row, playing);
  }

  async _load(row, playing) {
    this.wanted = row;
    if (this.busy) return;
    this.busy = true;
    try {
      const found = await read(`/api/play/${this.film.number}/decision/${row}`);
      if (this.known.size > KEPT) this.known.clear();
      this.known.set(row, found);
      const now = this.film.decision;
      if (playing || (now >= 0 && this.film.grants[now] === row)) this._draw(row, found, playing);
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "sub" }, error.message));
    }
    this.busy = false;
    if (this.wanted !== row && !playing) this._load(this.wanted, playing);
  }

  _draw(row, found, playing) {
    const { film } = this;
    this.shown = row;
    const job = film.jobs[film.job[row]];
    const stage = job.stages[film.stage[row]];
    const at = film.start[row] - film.first_s;
    const node = film.nodes[film.node[row]];
    const words = `${job.name}, stage ${stage.name}, gets a container on ${node.name} at ${at.toFixed(2)} s`;
    if (!playing && this.status.textContent !== words) this.status.textContent = words;
    this.body.replaceChildren(
      h(
        "p",
        { class: "verdict" },
        this._name(film.job[row], film.stage[row]),
        " gets a container on ",
        h("a", { href: `/cluster/node/${encodeURIComponent(node.name)}` }, node.name),
        h("span", { class: "sub" }, ` at ${at.toFixed(2)} s`),
      ),
      this._room(row, found),
      found.by && h("p", { class: "by" }, "First by ", h("b", null, found.by)),
      found.gang
        ? h("p", { class: "sub" }, "A gang: all of it starts at once, so nobody competes.")
        : this._table(row, found),
      this._others(found),
    );
  }

  _name(job, stage) {
    const told = this.film.jobs[job];
    if (!told) return h("span", null, "an application");
    return h(
      "span",
      { class: "who", title: `${told.name}: ${told.stages[stage]?.name ?? ""}` },
      h("i", { class: "swatch", style: { background: jobColour(job) } }),
      h("b", null, told.name),
      h("span", { class: "sub" }, told.stages[stage]?.name ?? ""),
    );
  }

  /** What was free on the node, and what of it this takes. */
  _room(row, found) {
    const { film } = this;
    const capacity = film.now.capacity[film.node[row]];
    const demand = film.demands[film.demand[row]];
    return h(
      "div",
      { class: "room" },
      film.types.map((name, r) => {
        const size = capacity[r] || 1;
        const free = Math.max(0, found.free[r] ?? 0) / size;
        const takes = Math.min(1, (demand[r] ?? 0) / size);
        const text = `${resourceName(name)}: takes ${amount(name, demand[r] ?? 0)} of ${amount(name, Math.max(0, found.free[r] ?? 0))} free, ${amount(name, size)} in all`;
        return h(
          "div",
          { title: text },
          h("span", { class: "sub" }, resourceName(name)),
          h(
            "div",
            { class: "roombar", role: "img", "aria-label": text },
            h("div", { class: "used", style: { width: `${100 * (1 - free)}%` } }),
            h("div", {
              class: "takes",
              style: { left: `${100 * (1 - free)}%`, width: `${100 * Math.max(0.012, takes)}%`, background: jobColour(film.job[row]) },
            }),
          ),
        );
      }),
    );
  }

  _table(row, told) {
    const ranked = told.ranked.map(([job, stage, pending, scores]) => [job, stage, pending, folded(scores)]);
    const found = { ...told, ranked };
    const all = [...new Set(found.ranked.flatMap(([, , , scores]) => Object.keys(scores)))];
    // what is the same for all tells nothing, but for the term that decides
    const terms = all.filter(
      (name, i) => name !== "place" && (i === 0 || SUMMANDS.has(name) || this._tells(found, name)),
    );
    const alone = found.ranked.length < 2;
    const guarantees = !terms.length && this.film.leaves.length > 1;
    const first = terms[0];
    const values = found.ranked.map(([, , , scores]) => scores[first]).filter((v) => v !== undefined);
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const bar = (value) => `${high > low ? (100 * Math.abs(value)) / (high - low) : 0}%`;
    return h(
      "div",
      null,
      scrolling(
        "scroll",
        "Candidates",
        h(
          "table",
          { class: "candidates" },
          h("caption", { class: "hide" }, "Candidates, best first"),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              h("th", { scope: "col" }, h("span", null, "Candidate")),
              h("th", { scope: "col", class: "num" }, h("span", null, "Waiting")),
              guarantees && h("th", { scope: "col", class: "num" }, h("span", null, "Its queue holds")),
              terms.map((name) =>
                h(
                  "th",
                  { scope: "col", class: "num", title: meaning(name) },
                  h("span", null, label(name)),
                ),
              ),
            ),
          ),
          h(
            "tbody",
            null,
            found.ranked.map(([job, stage, pending, scores], place) =>
              h(
                "tr",
                { class: place === 0 ? "won" : "" },
                h(
                  "td",
                  null,
                  h("span", { class: "rank", "aria-label": `rank ${place + 1}` }, place === 0 ? "✓" : place + 1),
                  this._name(job, stage),
                ),
                h("td", { class: "num" }, count(pending)),
                guarantees && h("td", { class: "num" }, this._guarantee(job, row)),
                terms.map((name) => {
                  const value = scores[name];
                  if (value === undefined) return h("td", { class: "num faint" }, "–");
                  return h(
                    "td",
                    { class: "num" },
                    figure(value),
                    name === first &&
                      h("div", { class: "scorebar" }, h("div", { class: value < 0 ? "neg" : "", style: { width: bar(value) } })),
                  );
                }),
              ),
            ),
          ),
        ),
      ),
      h(
        "p",
        { class: "sub legendline" },
        alone ? "Nothing else that waited could use this room." : this._words(terms),
      ),
    );
  }

  _words(terms) {
    const told = terms.filter(known).map((name) => `${label(name)}: ${meaning(name)}`);
    const without = "Each line is the matcher's choice without those above it";
    if (told.length) return `${without}. ${told.join("; ")}.`;
    return `${without}, in the order of the line: queue, priority, submission.`;
  }

  /** What a job's queue held before the grant, of what it is guaranteed. */
  _guarantee(job, row) {
    const { film } = this;
    const queue = film.now.queueOfJob[job];
    const own = film.now.queueOfJob[film.job[row]] === queue;
    const shares = film.shares(queue).map((share, r) => {
      const of = film.now.total[r];
      return own && of > 0 ? share - film.demands[film.demand[row]][r] / of : share;
    });
    const path = film.queues[queue];
    const capacity = film.now.queue[queue]?.capacity ?? 0;
    const part = capacity > 0 ? Math.max(0, ...shares) / capacity : 0;
    return `${path.replace(/^root\./, "")} ${percent(part)} of its guarantee`;
  }

  _tells(found, name) {
    const values = found.ranked.map(([, , , scores]) => scores[name]);
    return found.ranked.length > 1 ? new Set(values).size > 1 : Boolean(values[0]);
  }

  _others(found) {
    if (!found.others.length) return "";
    const by = new Map();
    for (const [job, stage, pending, why] of found.others) {
      const key = why || "its turn had not come";
      if (!by.has(key)) by.set(key, []);
      by.get(key).push([job, stage, pending]);
    }
    return h(
      "details",
      { class: "others", open: true },
      h("summary", null, `Ruled out here: ${plural(found.others.length + found.more, "stage")}`),
      h(
        "ul",
        null,
        [...by].map(([why, stages]) =>
          h(
            "li",
            null,
            h("b", null, why),
            h(
              "span",
              { class: "names" },
              stages.slice(0, LISTED).map(([job, stage]) => this._name(job, stage)),
              stages.length > LISTED && h("span", { class: "sub" }, `and ${stages.length - LISTED} more`),
            ),
          ),
        ),
      ),
    );
  }
}
