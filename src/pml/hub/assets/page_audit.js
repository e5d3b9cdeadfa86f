// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/audit",
  title: "Audit",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Audit")));
    return Promise.resolve();
  },
};
