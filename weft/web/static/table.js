// A table that sorts, filters and pages in the browser: only the rows of one page are elements.

import { apart, count, h, textWidth } from "./util.js";

const SIZES = [25, 50, 100];

/**
 * columns: {key, title, value(row) for sorting, cell(row) for showing, num, class, rank};
 * rowKey(row) is unique; open(row) makes rows focusable and opens one.
 */
export class Table {
  constructor({ columns, rowKey, label, open, sort, size = 25, empty = "Nothing here", href }) {
    Object.assign(this, { columns, rowKey, open, href, empty, size });
    this.sortBy = sort?.[0] ?? columns[0].key;
    this.down = sort?.[1] === "desc";
    this.page = 0;
    this.rows = [];
    this.shown = new Map();
    this.heads = new Map();
    this.body = h("tbody");
    const head = h(
      "tr",
      null,
      columns.map((column) => this.head(column)),
    );
    this.table = h("table", { "aria-label": label }, h("thead", null, head), this.body);
    this.note = h("p", { class: "empty", hidden: true });
    this.range = h("span", { role: "status" });
    this.back = h(
      "button",
      { class: "button small", type: "button", "data-turn": "-1" },
      "Previous",
    );
    this.next = h("button", { class: "button small", type: "button", "data-turn": "1" }, "Next");
    this.back.addEventListener("click", () => this.turn(-1));
    this.next.addEventListener("click", () => this.turn(1));
    const sizes = h(
      "select",
      { "aria-label": "Rows on a page" },
      SIZES.map((n) => h("option", { value: n, selected: n === size }, `${n} rows`)),
    );
    sizes.addEventListener("change", () => {
      this.size = Number(sizes.value);
      this.page = 0;
      this.draw();
    });
    this.pager = h(
      "div",
      { class: "pager" },
      this.range,
      h("span", { class: "grow" }),
      sizes,
      this.back,
      this.next,
    );
    this.element = h("div", null, h("div", { class: "scroll" }, this.table), this.note, this.pager);
    this.element.dataset.table = "";
    this.element.turn = (by) => this.turn(by);
  }

  head(column) {
    const cell = h("th", { scope: "col", class: classOf(column, column.num && "num") });
    if (column.value) {
      const button = h("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sort(column));
      cell.append(button);
      this.heads.set(column.key, cell);
    } else {
      cell.append(h("span", null, column.title));
    }
    return cell;
  }

  sort(column) {
    const same = this.sortBy === column.key;
    this.down = same ? !this.down : column.num === true;
    this.sortBy = column.key;
    this.page = 0;
    this.draw();
  }

  turn(by) {
    this.page += by;
    this.draw();
  }

  /** Show these rows, which already passed the page's filters. */
  set(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const column = this.columns.find((c) => c.key === this.sortBy);
    for (const [key, cell] of this.heads) {
      if (key === this.sortBy)
        cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const sign = this.down ? -1 : 1;
    const keyed = this.rows.map((row, index) => [column.value(row), index, row]);
    keyed.sort(([a, i], [b, j]) => sign * compare(a, b) || i - j);
    const pages = Math.max(1, Math.ceil(keyed.length / this.size));
    this.page = Math.max(0, Math.min(this.page, pages - 1));
    const first = this.page * this.size;
    const visible = keyed.slice(first, first + this.size).map((k) => k[2]);
    this.fill(visible);
    const last = first + visible.length;
    this.range.textContent = keyed.length
      ? `${count(first + 1)} to ${count(last)} of ${count(keyed.length)}`
      : "None";
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page >= pages - 1;
    this.pager.hidden = keyed.length <= Math.min(this.size, SIZES[0]);
    this.note.hidden = keyed.length > 0;
    this.note.textContent = this.empty;
    this.table.hidden = keyed.length === 0;
  }

  /** Rows that did not change keep their elements, and with them focus and selection. */
  fill(rows) {
    const fresh = new Map();
    const elements = rows.map((row) => {
      const key = this.rowKey(row);
      const cells = this.columns.map((column) => column.cell(row));
      const signature = cells
        .flat()
        .map((c) => (c instanceof Node ? c.outerHTML : String(c)))
        .join("\u0001");
      const known = this.shown.get(key);
      if (known && known.signature === signature) {
        fresh.set(key, known);
        return known.element;
      }
      const element = known?.element ?? this.row(row);
      element.replaceChildren(
        ...this.columns.map((column, i) =>
          h(
            "td",
            {
              class: classOf(column, column.num && "num", column.class),
            },
            cells[i],
          ),
        ),
      );
      element.row = row;
      fresh.set(key, { signature, element });
      return element;
    });
    this.shown = fresh;
    const same =
      elements.length === this.body.children.length &&
      elements.every((element, i) => element === this.body.children[i]);
    tellApart(elements);
    if (same) return;
    const focused = document.activeElement;
    this.body.replaceChildren(...elements);
    if (focused && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  row(row) {
    const element = h("tr", this.open ? { tabindex: 0 } : null);
    element.row = row;
    if (this.open) {
      element.addEventListener("click", (event) => {
        if (!event.target.closest("a, button") && !String(getSelection())) this.open(element.row);
      });
      element.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && event.target === element) this.open(element.row);
      });
    }
    return element;
  }
}

/** Columns of rank 3 go first where there is no room, then those of rank 2. */
const classOf = (column, ...more) =>
  [...more, column.rank > 1 && `rank${column.rank}`].filter(Boolean).join(" ") || null;

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Names that were cut to the same text, though they are different, show where they differ. */
function tellApart(rows) {
  const alike = new Map();
  for (const row of rows) {
    for (const link of row.querySelectorAll("a[title]")) {
      if (!link.textContent.includes("…")) continue;
      const text = link.textContent;
      alike.set(text, [...(alike.get(text) ?? []), link]);
    }
  }
  for (const [text, links] of alike) {
    const names = new Set(links.map((link) => link.title));
    if (names.size < 2) continue;
    for (const link of links) {
      const others = [...names].filter((name) => name !== link.title);
      link.textContent = apart(link.title, others, textWidth(text));
    }
  }
}
