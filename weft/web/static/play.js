// The player: a run that is over, or two side by side, at any moment of it.

import { Clock, clockText } from "./play_clock.js";
import { ClusterView } from "./play_cluster.js";
import { DecisionPanel } from "./play_decision.js";
import { Film } from "./play_film.js";
import { Figures, Jobs, OverTime, Queues, runMark } from "./play_parts.js";
import { change, count, duration, h, plural, read, scrolling } from "./util.js";

const SETTLED_MS = 140; // the other pages follow when the clock stands still for so long
const SLOW_MS = 90; // words and tables are drawn so often while it plays
const KEYS = [
  [["space"], "Play or pause"],
  [["←", "→"], "Previous or next decision"],
  [["shift ←", "shift →"], "A fiftieth of the run back or on"],
  [["Home", "End"], "To its start or end"],
  [[",", "."], "Slower or faster"],
  [["1", "2"], "Whose decisions are stepped"],
  [["g", "p"], "Player"],
];

/** Load what is played and put the clock under the pages; answers what the frame needs. */
export async function openPlayer({ refresh }) {
  const { runs } = await read("/api/play");
  const films = await Promise.all(
    runs.map(async (_, n) => new Film(await read(`/api/play/${n}`), n)),
  );
  const player = new Player(films, refresh);
  document.body.append(player.clock.element);
  document.body.classList.add("played");
  player.keys();
  return player;
}

class Player {
  constructor(films, refresh) {
    this.films = films;
    this.refresh = refresh;
    this.here = false; // whether the player's own page is shown
    this.view = null;
    this.told = "";
    this.clock = new Clock(films, () => this.moved());
    const from = new URLSearchParams(location.search);
    const focus = Number(from.get("run") ?? 0);
    if (focus > 0 && focus < films.length) this.clock.focus = focus;
    if (from.has("decision")) this.clock.toDecision(Number(from.get("decision")) - 1);
    else this.clock.seek(Number(from.get("t")) || 0);
    const again = () => this.view?.layout();
    new MutationObserver(() => {
      again();
      this.clock.redraw();
    }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }

  get title() {
    return this.films.map((film) => film.name).join(" beside ");
  }

  moved() {
    if (this.here) {
      this.view?.draw();
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this._address(), SETTLED_MS);
      return;
    }
    clearTimeout(this.settling);
    this.settling = setTimeout(async () => {
      await this.sync();
      this.refresh();
    }, SETTLED_MS);
  }

  /** The address leads back to this moment. */
  _address() {
    if (!this.here || this.clock.playing) return;
    const { clock } = this;
    const words = new URLSearchParams();
    if (clock.focus) words.set("run", clock.focus);
    if (clock.pinned >= 0) words.set("decision", this.films[clock.focus].decision + 1);
    else if (clock.t > 0) words.set("t", clock.t.toFixed(3));
    const text = words.toString();
    history.replaceState(null, "", `/cluster/play${text ? `?${text}` : ""}`);
  }

  /** Tell the server which moment the cluster's other pages are to show. */
  async sync() {
    const film = this.films[this.clock.focus];
    const body = { run: film.number, at_s: film.now.t };
    const key = JSON.stringify(body);
    if (key === this.told) return;
    this.told = key;
    await change("/api/play/at", "POST", body);
  }

  /** A page is about to be shown. */
  async enter(name) {
    this.here = name === "play";
    if (!this.here) await this.sync();
  }

  key(event) {
    return this.clock.key(event);
  }

  keys() {
    const list = document.querySelector("#keys dl");
    for (const [keys, what] of KEYS)
      list.append(
        h(
          "div",
          null,
          h("dt", null, keys.flatMap((key) => [h("kbd", null, key), " "])),
          h("dd", null, what),
        ),
      );
  }

  /** The page of the player. */
  page() {
    const view = new View(this);
    this.view = view;
    return {
      title: this.title,
      path: "",
      element: view.element,
      close: () => {
        view.close();
        if (this.view === view) this.view = null;
      },
    };
  }
}

class View {
  constructor(player) {
    const { films, clock } = player;
    Object.assign(this, { player, films, clock, chosen: -1, drawn: 0 });
    const high = films.length > 1 ? 400 : 560;
    this.charts = films.map((film) => new ClusterView(film, clock.span, high));
    this.figures = films.map((film) => new Figures(film));
    this.panels = films.map(
      (film, n) =>
        new DecisionPanel(film, (by) => {
          if (clock.focus !== n) clock.setFocus(n);
          clock.step(by);
        }),
    );
    this.jobs = new Jobs(films, (job) => this.pick(job));
    this.queues = new Queues(films);
    this.time = new OverTime(films, clock.span, (t) => clock.seek(t));
    this.charts.forEach((chart, n) => {
      chart.onPick = (job, t) => {
        if (t >= 0) clock.seek(t);
        else if (films.length === 1 || n === 0) this.pick(job);
      };
    });
    this.names = films.map((film) => this._head(film));
    this.boxes = this.charts.map((chart) => scrolling("cluster-box", "Nodes over time", chart.canvas));
    this.element = h(
      "div",
      { class: "page play" },
      films.length > 1 ? this._two() : this._one(),
      this._below(),
    );
    this.sizes = new ResizeObserver(() => this.layout());
    for (const box of this.boxes) this.sizes.observe(box);
    this.sizes.observe(this.time.box);
  }

  _head(film) {
    const { clock, films } = this;
    const about = [
      plural(film.jobs.length, "job"), plural(film.grants.length, "task"),
      plural(film.nodes.length, "node"), duration(film.span),
    ].join(", ");
    const title = h(films.length > 1 ? "h2" : "h1", null, runMark(film, films), film.name);
    return h(
      "div",
      { class: "head runhead" },
      title,
      film.scheduler !== film.name && h("span", { class: "badge running" }, film.scheduler),
      h("p", { class: "sub", title: film.from }, `${film.simulated ? "simulated" : "live"}: ${about}`),
      h("span", { class: "grow" }),
      films.length > 1 &&
        h(
          "button",
          {
            type: "button", class: "button small focus", "aria-pressed": "false",
            title: `Step its decisions (${film.number + 1})`,
            onclick: () => clock.setFocus(film.number),
          },
          "Step",
        ),
    );
  }

  _chart(n) {
    return h(
      "section",
      { class: "panel", "aria-label": `Nodes of ${this.films[n].name} over time` },
      this.figures[n].element,
      this.boxes[n],
    );
  }

  _one() {
    return [
      this.names[0],
      h("div", { class: "cols playcols" }, this._chart(0), this.panels[0].element),
    ];
  }

  _two() {
    return [
      h("h1", { class: "hide" }, this.player.title),
      h(
        "div",
        { class: "twin" },
        this.films.map((_, n) =>
          h("div", { class: "twinrun" }, this.names[n], this._chart(n), this.panels[n].element),
        ),
      ),
    ];
  }

  _below() {
    return h(
      "div",
      { class: "cols playcols" },
      h(
        "section",
        { class: "panel flush", "aria-labelledby": "p-jobs" },
        h(
          "header",
          null,
          h("h2", { id: "p-jobs" }, "Jobs"),
          h("span", { class: "grow" }),
          h("span", { class: "legend" }, [
            ["finished", "done"], ["running", "running"], ["pending", "waiting"],
          ].map(([kind, word]) =>
            h("span", null, h("i", { class: "swatch", style: { background: `var(--bar-${kind})` } }), word),
          )),
        ),
        this.jobs.element,
      ),
      h(
        "div",
        { class: "stack" },
        h(
          "section",
          { class: "panel", "aria-labelledby": "p-time" },
          h("header", null, h("h2", { id: "p-time" }, "Over time"), h("span", { class: "grow" })),
          this.time.choice,
          this.time.element,
        ),
        h(
          "section",
          { class: "panel", "aria-labelledby": "p-queues" },
          h("header", null, h("h2", { id: "p-queues" }, "Queues now")),
          this.queues.element,
        ),
      ),
    );
  }

  /** Show only one job's tasks, or again all. */
  pick(job) {
    this.chosen = job === this.chosen ? -1 : job;
    this.charts.forEach((chart, n) => {
      chart.choose(this.chosen < 0 ? -1 : (this.jobs.pairs[this.chosen]?.[n] ?? -1));
    });
    this.draw(true);
  }

  layout() {
    this.charts.forEach((chart, n) => {
      const wide = this.boxes[n].clientWidth;
      if (wide) chart.layout(wide);
    });
    this.time.layout();
    this.draw(true);
  }

  draw(whole = false) {
    const { clock, films } = this;
    this.charts.forEach((chart, n) => {
      const place = films[n].decision;
      chart.lit = place < 0 || clock.playing ? -1 : films[n].grants[place];
      chart.paint();
    });
    this.time.show(clock.t);
    const now = performance.now();
    if (clock.playing && !whole && now - this.drawn < SLOW_MS) return;
    this.drawn = now;
    for (const one of this.figures) one.show();
    this.jobs.show(this.chosen);
    this.queues.show();
    for (const panel of this.panels) panel.show(clock.playing && !clock.byDecision);
    this.names.forEach((name, n) => {
      name.querySelector(".focus")?.setAttribute("aria-pressed", String(clock.focus === n));
    });
    this.charts.forEach((chart, n) => {
      const { now: state, name } = films[n];
      chart.canvas.setAttribute(
        "aria-label",
        `${name} at ${clockText(clock.t)}: ${count(state.running)} tasks run, ${count(state.waiting)} wait`,
      );
    });
  }

  close() {
    this.sizes.disconnect();
  }
}
