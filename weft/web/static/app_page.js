// One application: what it is, why it waits, its stages as a graph, its tasks over time.

import { drawHead, drawWhy, frame, stageTable } from "./app_parts.js";
import { drawTimes } from "./app_times.js";
import { isEnded } from "./apps_page.js";
import { Dag } from "./dag.js";
import { confirmed, read } from "./util.js";

export function appPage({ argument, refresh }) {
  let data = null;
  let plan = null;
  let planNote = "";
  let asked = false;
  let chosen = -1;
  let by = "stage";
  const parts = frame(argument);
  const dag = new Dag((position) => {
    chosen = chosen === position ? -1 : position;
    redraw();
  });
  parts.dag.append(dag.element);
  const table = stageTable((row) => {
    chosen = chosen === row.position ? -1 : row.position;
    redraw();
  });
  parts.stages.append(table.element);
  for (const button of parts.by.children) {
    button.addEventListener("click", () => {
      by = button.value;
      redraw();
    });
  }
  parts.kill.addEventListener("click", async () => {
    if (
      !(await confirmed(
        `Kill ${data.app.name}?`,
        "Its running tasks end and what they did is lost. This cannot be undone.",
        "Kill it",
      ))
    )
      return;
    parts.kill.disabled = true;
    try {
      await read(`/ws/v1/cluster/apps/${argument}/state`, {
        method: "PUT",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: '{"state":"KILLED"}',
      });
    } catch (error) {
      parts.kill.disabled = false;
      throw error;
    }
    refresh();
  });

  async function askPlan() {
    asked = true;
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
    dag.draw(data.stages, chosen);
    table.set(
      data.stages.map((stage, position) => ({ ...stage, position, chosen: position === chosen })),
    );
    for (const button of parts.by.children)
      button.setAttribute("aria-pressed", String(button.value === by));
    drawTimes(parts, { data, plan, planNote, by, chosen });
  }

  const sizes = new ResizeObserver(() => {
    if (data) drawTimes(parts, { data, plan, planNote, by, chosen });
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
      parts.note.hidden = false;
      parts.note.textContent = text;
      parts.rest.forEach((part) => {
        part.hidden = true;
      });
    },
    draw(fresh) {
      data = fresh;
      if (!asked) askPlan();
      redraw();
    },
  };
}
