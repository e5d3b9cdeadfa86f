// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/servers",
  title: "Servers",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Servers")));
    return Promise.resolve();
  },
};
