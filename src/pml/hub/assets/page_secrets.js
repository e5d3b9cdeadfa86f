// @ts-check
import { h } from "./dom.js";

/** @type {import("./router.js").Page} */
export const page = {
  path: "/secrets/:id",
  title: "Secrets",
  render(root) {
    root.append(h("div", { class: "page-head" }, h("h1", null, "Secrets")));
    return Promise.resolve();
  },
};
