// The form that changes queues while the cluster runs: the whole tree, as `weft queues --apply`.

import { h, read, scrolling } from "./util.js";

const OWN = new Set(["labels", "fair", "user_weights"]); // tables of a queue that are no queues
const isQueue = ([name, value]) =>
  !OWN.has(name) && typeof value === "object" && value !== null && !Array.isArray(value);
const JSON_HEADERS = { "Content-Type": "application/json", Accept: "application/json" };

/** Every queue below the root by its path, with its own table. */
function flat(tree, path) {
  return Object.entries(tree)
    .filter(isQueue)
    .flatMap(([name, table]) => [
      [`${path}.${name}`, table],
      ...flat(table, `${path}.${name}`),
    ]);
}

export class QueueForm {
  constructor(done) {
    this.done = done;
    this.body = h("tbody");
    this.said = h("div", { class: "said", role: "status" });
    this.parent = h("select", { "aria-label": "Below which queue" });
    this.name = h("input", { type: "text", "aria-label": "Name of the new queue", placeholder: "name" });
    this.element = h(
      "dialog",
      { class: "wide", "aria-labelledby": "qf-title" },
      h("h2", { id: "qf-title" }, "Change queues"),
      h(
        "p",
        { class: "sub" },
        "The tree is taken as a whole. Containers keep running; a queue that goes has to be empty.",
      ),
      scrolling(
        "scroll",
        "Queues to change",
        h(
          "table",
          { "aria-label": "Queues to change" },
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["Queue", "Guaranteed, %", "At most, %", "State", "Remove"].map((text) =>
                h("th", { scope: "col" }, text),
              ),
            ),
          ),
          this.body,
        ),
      ),
      h(
        "div",
        { class: "row add" },
        h("span", null, "New queue below "),
        this.parent,
        this.name,
        h("button", { type: "button", class: "button small", onclick: () => this._add() }, "Add"),
      ),
      this.said,
      h(
        "div",
        { class: "row" },
        h("button", { type: "button", class: "button", onclick: () => this.element.close() }, "Cancel"),
        h("button", { type: "button", class: "button", onclick: () => this._send(true) }, "See what changes"),
        h("button", { type: "button", class: "button strong", onclick: () => this._send(false) }, "Apply"),
      ),
    );
  }

  async open() {
    this.said.replaceChildren();
    try {
      const tree = await read("/api/queues/tree");
      [[this.root, this.tree]] = Object.entries(tree);
      this._draw();
    } catch (error) {
      this._tell(h("p", { class: "error" }, error.message));
    }
    if (!this.element.open) this.element.showModal();
  }

  _draw() {
    const queues = flat(this.tree, this.root);
    this.gone = new Set();
    this.body.replaceChildren(...queues.map(([path, table]) => this._row(path, table)));
    const paths = [this.root, ...queues.map(([path]) => path)];
    this.parent.replaceChildren(...paths.map((path) => h("option", { value: path }, path)));
  }

  _row(path, table) {
    const share = (key, label) => {
      const input = h("input", {
        type: "number",
        min: 0,
        max: 100,
        step: "any",
        "aria-label": `${label} of ${path}`,
        value: table[key] === undefined ? "" : String(Number((100 * table[key]).toPrecision(12))),
        placeholder: key === "max_capacity" ? "100" : "",
      });
      input.addEventListener("input", () => {
        if (input.value === "") delete table[key];
        else table[key] = Number(input.value) / 100;
      });
      return input;
    };
    const state = h(
      "select",
      { "aria-label": `State of ${path}` },
      ["RUNNING", "STOPPED"].map((one) =>
        h("option", { value: one, selected: one === (table.state ?? "RUNNING") }, one.toLowerCase()),
      ),
    );
    state.addEventListener("change", () => {
      table.state = state.value;
    });
    const gone = h("input", { type: "checkbox", "aria-label": `Remove ${path}` });
    gone.addEventListener("change", () => {
      if (gone.checked) this.gone.add(path);
      else this.gone.delete(path);
    });
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, path),
      h("td", null, share("capacity", "Guaranteed")),
      h("td", null, share("max_capacity", "At most")),
      h("td", null, state),
      h("td", null, gone),
    );
  }

  _at(path) {
    return path
      .split(".")
      .slice(1)
      .reduce((table, name) => table[name], this.tree);
  }

  _add() {
    const name = this.name.value.trim();
    const above = this._at(this.parent.value);
    if (!name || name in above) {
      this._tell(h("p", { class: "error" }, name ? `There is a ${name} below it already.` : "Give it a name."));
      return;
    }
    above[name] = { capacity: 0 };
    this.name.value = "";
    this._tell();
    this._draw();
  }

  /** The tree without what is to go. */
  _wanted() {
    const tree = structuredClone({ [this.root]: this.tree });
    for (const path of this.gone) {
      const names = path.split(".");
      const last = names.pop();
      const above = names.reduce((table, name) => table?.[name], tree);
      if (above) delete above[last];
    }
    return tree;
  }

  async _send(dry) {
    try {
      const told = await read(`/api/queues${dry ? "?dry_run=1" : ""}`, {
        method: "PUT",
        headers: JSON_HEADERS,
        body: JSON.stringify(this._wanted()),
      });
      if (!dry) {
        this.element.close();
        this.done();
        return;
      }
      const lines = [
        ...told.changes.map((one) => `${one.queue}: ${one.change}${one.text ? `, ${one.text}` : ""}`),
        ...told.neverHeld.map((one) => `${one.app_id} would wait without end: ${one.text}`),
      ];
      this._tell(
        h("p", null, lines.length ? "This would change:" : "Nothing would change."),
        h("ul", null, lines.map((line) => h("li", null, line))),
      );
    } catch (error) {
      this._tell(h("p", { class: "error" }, error.message));
    }
  }

  _tell(...parts) {
    this.said.replaceChildren(...parts);
  }
}
