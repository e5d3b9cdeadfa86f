// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/grants",
  title: "Grants",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Grants")));
    return Promise.resolve();
  },
};
