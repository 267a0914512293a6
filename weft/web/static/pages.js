// Every page by its name in the path.

import { appPage } from "./app_page.js";
import { appsPage } from "./apps_page.js";
import { nodePage, nodesPage } from "./nodes_page.js";
import { overviewPage } from "./overview_page.js";
import { queuesPage } from "./queues_page.js";

export const pages = {
  overview: overviewPage,
  apps: appsPage,
  app: appPage,
  nodes: nodesPage,
  node: nodePage,
  queues: queuesPage,
};
