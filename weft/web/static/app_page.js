// One application: what it is, why it waits, its stages as a graph, its tasks over time.

import { drawHead, drawWhy, frame, stageTable } from "./app_parts.js";
import { TimeView, drawTimes } from "./app_times.js";
import { isEnded } from "./apps_page.js";
import { Dag } from "./dag.js";
import { asked, change, confirmed, count, h, plural, read } from "./util.js";

const leaves = (queue) => (queue.children.length ? queue.children.flatMap(leaves) : [queue.name]);

export function appPage({ argument, go, refresh }) {
  let data = null;
  let plan = null;
  let planNote = "";
  let planAsked = false;
  let chosen = -1;
  let by = "stage";
  const parts = frame(argument);
  const dag = new Dag((position) => {
    chosen = chosen === position ? -1 : position;
    redraw();
  });
  parts.view = new TimeView(() => redraw());
  parts.zoom.append(parts.view.element);
  parts.dag.append(dag.element);
  parts.tools.append(dag.tools);
  const stagePath = (position) => `/cluster/app/${argument}/stage/${position}`;
  const table = stageTable((row) => go(stagePath(row.position)));
  parts.stages.append(table.element);
  for (const button of parts.by.children) {
    button.addEventListener("click", () => {
      by = button.value;
      redraw();
    });
  }
  const rest = `/ws/v1/cluster/apps/${argument}`;
  parts.kill.addEventListener("click", async () => {
    const title = `Kill ${data.app.name}?`;
    const text = "Its running tasks end and what they did is lost. This cannot be undone.";
    if (!(await confirmed(title, text, "Kill it"))) return;
    parts.kill.disabled = true;
    await change(`${rest}/state`, "PUT", { state: "KILLED" });
    parts.kill.disabled = false;
    refresh();
  });
  parts.move.addEventListener("click", async () => {
    const names = leaves((await read("/api/queues")).root);
    const field = h(
      "select",
      null,
      names.map((name) => h("option", { value: name, selected: name === data.app.queue }, name)),
    );
    const text = "Its containers and what it asks for count there from now on.";
    const queue = await asked(`Move ${data.app.name} to another queue`, text, field, "Move it");
    if (queue && queue !== data.app.queue && (await change(`${rest}/queue`, "PUT", { queue })))
      refresh();
  });
  parts.priority.addEventListener("click", async () => {
    const field = h("input", { type: "number", step: 1, value: data.app.priority, required: true });
    const text = "A larger number goes first within its queue.";
    const value = await asked(`Priority of ${data.app.name}`, text, field, "Set it");
    if (value === null || !field.checkValidity()) return;
    if (await change(`${rest}/priority`, "PUT", { priority: Number(value) })) refresh();
  });

  async function askPlan() {
    planAsked = true;
    planNote = "Drawing the preferred schedule";
    try {
      const answer = await read(`/api/apps/${argument}/plan`);
      if (answer.problem) planNote = `No preferred schedule: ${answer.problem}`;
      else plan = answer;
    } catch (error) {
      planNote = `No preferred schedule: ${error.message}`;
    }
    if (data) redraw();
  }

  function redraw() {
    drawHead(parts, data);
    drawWhy(parts, data);
    // Nothing of what is over waits any more.
    for (const stage of data.stages) stage.over = Number(isEnded(data.app));
    dag.draw(data.stages, chosen);
    table.set(
      data.stages.map((stage, position) => ({
        ...stage,
        position,
        chosen: position === chosen,
        href: stagePath(position),
        short: dag.short(stage.name),
      })),
    );
    drawChosen();
    drawPart();
    for (const button of parts.by.children)
      button.setAttribute("aria-pressed", String(button.value === by));
    drawTimes(parts, {
      data,
      plan,
      planNote,
      by,
      chosen,
      groups: dag.found,
      short: (name) => dag.short(name),
    });
  }

  /** What the stressed stage is, with the way to its tasks. */
  function drawChosen() {
    const stage = data.stages[chosen];
    parts.chosen.hidden = !stage;
    if (!stage) return;
    parts.chosen.replaceChildren(
      h("strong", null, stage.name),
      `: ${count(stage.finished)} of ${plural(stage.tasks, "task")} finished. `,
      h("a", { href: stagePath(chosen) }, "Its tasks"),
    );
  }

  /** A chart that shows a part says so. */
  function drawPart() {
    const shown = data.spans.length;
    const known = data.spans_known;
    const words = [];
    if (shown < known)
      words.push(`${count(shown)} of ${plural(known, "container")}, evenly chosen.`);
    if (!data.spans_whole)
      words.push("Not all of it was watched: containers that ended before are missing.");
    parts.part.hidden = !words.length;
    parts.part.textContent = words.length ? `Shown is a part: ${words.join(" ")}` : "";
  }

  const sizes = new ResizeObserver(() => {
    if (data) dag.draw(data.stages, chosen);
    if (data)
      drawTimes(parts, {
        data,
        plan,
        planNote,
        by,
        chosen,
        groups: dag.found,
        short: (name) => dag.short(name),
      });
  });
  sizes.observe(parts.pair);
  const timer = setInterval(() => {
    if (data && !isEnded(data.app) && !document.hidden) refresh();
  }, 2000);
  return {
    get title() {
      return data?.app.name ?? "Application";
    },
    path: `/api/apps/${encodeURIComponent(argument)}`,
    element: parts.element,
    close() {
      clearInterval(timer);
      sizes.disconnect();
    },
    missing(text) {
      parts.title.textContent = "There is no such application";
      parts.note.hidden = false;
      parts.note.textContent = text;
      parts.actions.hidden = true;
      parts.rest.forEach((part) => {
        part.hidden = true;
      });
    },
    draw(fresh) {
      data = fresh;
      if (!planAsked) askPlan();
      redraw();
    },
  };
}
