// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/sessions",
  title: "Sessions",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Sessions")));
    return Promise.resolve();
  },
};
