// Every page by its name in the path.

import { appPage } from "./app_page.js";
import { appsPage } from "./apps_page.js";
import { eventsPage } from "./events_page.js";
import { nodePage, nodesPage } from "./nodes_page.js";
import { overviewPage } from "./overview_page.js";
import { queuesPage } from "./queues_page.js";
import { settingsPage } from "./settings_page.js";
import { stagePage } from "./stage_page.js";
import { h } from "./util.js";

/** What the path does not name. */
function nowherePage({ argument }) {
  return {
    title: "Nothing here",
    path: "",
    element: h(
      "div",
      { class: "page" },
      h("div", { class: "head" }, h("h1", null, "There is no such page")),
      h(
        "p",
        { class: "panel" },
        h("span", { class: "mono" }, argument),
        " names nothing. ",
        h("a", { href: "/cluster" }, "To the overview"),
      ),
    ),
  };
}

export const pages = {
  overview: overviewPage,
  apps: appsPage,
  app: appPage,
  stage: stagePage,
  nodes: nodesPage,
  node: nodePage,
  queues: queuesPage,
  events: eventsPage,
  settings: settingsPage,
  nowhere: nowherePage,
};
