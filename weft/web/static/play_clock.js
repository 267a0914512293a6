// The clock of a played run: where it stands, whether it goes, and the bar that moves it.

import { h } from "./util.js";

const RATES = [0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 1000];
const WHOLE_S = 45; // a run is played in about so long unless told otherwise
const STEP_MS = 900; // between decisions, played one by one
const JUMP = 0.02; // of the run
const TRACK_HIGH = 34;

const icon = (path) => {
  const box = document.createElement("span");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  box.append(svg);
  return box.firstChild;
};
const ICONS = {
  play: "M6 3.5v13l11-6.5z",
  pause: "M5 3.5h3.5v13H5zM11.5 3.5H15v13h-3.5z",
  back: "M4 4h2.2v12H4zM16 4v12l-8.5-6z",
  next: "M13.8 4H16v12h-2.2zM4 4v12l8.5-6z",
};

/** 83.4 s of a run as 1:23.4. */
export function clockText(seconds) {
  const step = seconds < 3600 ? 100 : 1;
  const s = Math.round(Math.max(0, seconds) * step) / step; // first: 59.999 s is a minute
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor((s % 3600) / 60);
  const rest = (s % 60).toFixed(hours ? 0 : 2).padStart(hours ? 2 : 5, "0");
  return `${hours ? `${hours}:${String(minutes).padStart(2, "0")}` : minutes}:${rest}`;
}

/** Where both runs stand: `t` in s since the first submission; a decision pins its own run. */
export class Clock {
  constructor(films, changed) {
    this.films = films;
    this.changed = changed;
    this.span = Math.max(...films.map((film) => film.span));
    this.t = 0;
    this.focus = 0; // the run whose decisions are stepped
    this.pinned = -1; // the decision of that run that was stepped to, as a row
    this.playing = false;
    const wanted = this.span / WHOLE_S;
    this.rate = RATES.reduce((best, rate) =>
      Math.abs(Math.log(rate / wanted)) < Math.abs(Math.log(best / wanted)) ? rate : best,
    );
    this.byDecision = false;
    this._bar();
  }

  /** Move to a time; the films follow. */
  seek(t) {
    this.t = Math.max(0, Math.min(this.span, t));
    this.pinned = -1;
    for (const film of this.films) {
      if (this.t > 0) film.seek(film.first_s + this.t);
      else film.rewind();
    }
    this._moved();
  }

  /** Move to a decision of the run in focus, by its place among all. */
  toDecision(place) {
    const film = this.films[this.focus];
    if (!film.grants.length) return;
    const row = film.grants[Math.max(0, Math.min(film.grants.length - 1, place))];
    this.t = film.start[row] - film.first_s;
    for (const other of this.films) if (other !== film) other.seek(other.first_s + this.t);
    film.seekRow(row);
    this.pinned = row;
    this._moved();
  }

  step(by) {
    const film = this.films[this.focus];
    this.toDecision(film.decision + by);
  }

  setFocus(number) {
    if (number >= this.films.length) return;
    this.focus = number;
    this.pinned = -1;
    this._moved();
  }

  toggle(on = !this.playing) {
    if (on && this.t >= this.span) this.seek(0);
    this.playing = on;
    this.button.replaceChildren(icon(on ? ICONS.pause : ICONS.play));
    this.button.setAttribute("aria-label", on ? "Pause" : "Play");
    this._last = performance.now();
    if (on) requestAnimationFrame((now) => this._tick(now));
    else this.changed();
  }

  faster(by) {
    const at = RATES.indexOf(this.rate) + by;
    this.rate = RATES[Math.max(0, Math.min(RATES.length - 1, at))];
    this.byDecision = false;
    this._named();
  }

  _tick(now) {
    if (!this.playing) return;
    const passed = now - this._last;
    if (this.byDecision) {
      if (passed >= STEP_MS) {
        this._last = now;
        const film = this.films[this.focus];
        if (film.decision + 1 >= film.grants.length) this.toggle(false);
        else this.step(1);
      }
    } else {
      this._last = now;
      this.seek(this.t + (Math.min(passed, 250) / 1000) * this.rate);
      if (this.t >= this.span) this.toggle(false);
    }
    if (this.playing) requestAnimationFrame((next) => this._tick(next));
  }

  _moved() {
    this.slider.value = String(this.t);
    this.slider.setAttribute("aria-valuetext", `${clockText(this.t)} of ${clockText(this.span)}`);
    this.text.textContent = clockText(this.t);
    this._track();
    this.changed();
  }

  // -- the bar -----------------------------------------------------------------------------------

  _bar() {
    const button = (name, label, key, press) =>
      h(
        "button",
        { type: "button", class: "icon", "aria-label": label, title: `${label} (${key})`, onclick: press },
        icon(ICONS[name]),
      );
    this.button = button("play", "Play", "space", () => this.toggle());
    this.button.classList.add("play");
    this.text = h("span", { class: "time" }, clockText(0));
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: this.span,
      step: this.span / 1000,
      value: 0,
      "aria-label": "Time in the run",
      oninput: () => this.seek(Number(this.slider.value)),
    });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.speed = h("select", { "aria-label": "Speed", title: "Speed (, and .)" });
    for (const rate of RATES) this.speed.append(h("option", { value: rate }, `× ${rate}`));
    this.speed.append(h("option", { value: "step" }, "one by one"));
    this.speed.addEventListener("change", () => {
      this.byDecision = this.speed.value === "step";
      if (!this.byDecision) this.rate = Number(this.speed.value);
    });
    this._named();
    this.element = h(
      "section",
      { class: "transport", "aria-label": "Player" },
      button("back", "Previous decision", "←", () => this.step(-1)),
      this.button,
      button("next", "Next decision", "→", () => this.step(1)),
      this.text,
      h("div", { class: "track" }, this.canvas, this.slider),
      h("span", { class: "time faint" }, clockText(this.span)),
      this.speed,
    );
    new ResizeObserver(() => this._track()).observe(this.canvas);
  }

  _named() {
    this.speed.value = this.byDecision ? "step" : String(this.rate);
  }

  /** How full the cluster was, behind the slider: what is over in colour. */
  _track() {
    const { canvas } = this;
    const wide = canvas.clientWidth;
    if (!wide) return;
    const dots = devicePixelRatio || 1;
    if (canvas.width !== Math.round(wide * dots)) {
      canvas.width = Math.round(wide * dots);
      canvas.height = TRACK_HIGH * dots;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, wide, TRACK_HIGH);
    const style = getComputedStyle(canvas);
    const colours = [style.getPropertyValue("--chart-1"), style.getPropertyValue("--chart-2")];
    const each = TRACK_HIGH / this.films.length;
    this.films.forEach((film, n) => {
      const base = each * (n + 1);
      const x = (t) => (t / this.span) * wide;
      const shape = new Path2D();
      shape.moveTo(0, base);
      film.chart.times.forEach((t, i) => {
        shape.lineTo(x(t), base - 1.5 - film.chart.top[i] * (each - 4));
      });
      shape.lineTo(x(film.span), base);
      pen.fillStyle = colours[n];
      pen.globalAlpha = 0.22;
      pen.fill(shape);
      pen.save();
      pen.beginPath();
      pen.rect(0, 0, x(this.t), TRACK_HIGH);
      pen.clip();
      pen.globalAlpha = 0.75;
      pen.fill(shape);
      pen.restore();
    });
  }

  redraw() {
    this._track();
  }

  /** A key of the player; answers whether it was one. */
  key(event) {
    const big = this.span * JUMP;
    switch (event.key) {
      case " ":
        this.toggle();
        return true;
      case "ArrowRight":
        if (event.shiftKey) this.seek(this.t + big);
        else this.step(1);
        return true;
      case "ArrowLeft":
        if (event.shiftKey) this.seek(this.t - big);
        else this.step(-1);
        return true;
      case "Home":
        this.seek(0);
        return true;
      case "End":
        this.seek(this.span);
        return true;
      case ",":
        this.faster(-1);
        return true;
      case ".":
        this.faster(1);
        return true;
      case "1":
      case "2":
        this.setFocus(Number(event.key) - 1);
        return true;
      default:
        return false;
    }
  }
}
