// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/rules",
  title: "Rules",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Rules")));
    return Promise.resolve();
  },
};
