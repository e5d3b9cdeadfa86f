// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/history",
  title: "History",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "History")));
    return Promise.resolve();
  },
};
