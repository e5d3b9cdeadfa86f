// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/trust",
  title: "Trust",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Trust")));
    return Promise.resolve();
  },
};
