"use strict";

// Addresses, keys, and the frame around every page.
(() => {
  const { h } = legato;
  let page = null;
  let turn = 0;

  const HELP = [
    ["← →", "step before, after"], ["Home End", "first, last step"], ["1 2 3", "seen, after, difference"],
    ["[ ]", "rollout or group before, after"], ["g", "group of the rollout"], ["u", "up to the run"],
    ["j k Enter", "move in the table, open"], ["/", "search in replies"], ["?", "this help"],
  ];

  function route(parts, query) {
    switch (parts[0]) {
      case "": case undefined: return legato.runsPage();
      case "live": return legato.livePage();
      case "compare": return legato.comparePage(parts[1], parts[2]);
      case "run":
        if (parts[2] === "group") return legato.groupPage(parts[1], parts[3]);
        if (parts[2] === "rollout") return legato.rolloutPage(parts[1], parts[3], parts[4]);
        return legato.runPage(parts[1], query);
      default: throw new Error("this address leads nowhere");
    }
  }

  legato.fail = (error) => {
    document.querySelector("main").replaceChildren(h("p", { class: "error" }, error.message));
  };

  async function open() {
    const mine = ++turn;
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    try {
      const { runs, live } = await legato.load("runs");
      const next = await route(path.split("/").map(decodeURIComponent), new URLSearchParams(query || ""));
      if (mine !== turn) return;
      page = next;
      document.title = `${page.title} · legato`;
      const home = h("a", { class: "home", href: "#/" }, "legato");
      const crumbs = page.crumbs.map(([href, text]) => [h("span", { class: "sep" }, "›"), h("a", { href }, text)]);
      document.querySelector("header").replaceChildren(home, ...crumbs.flat(), h("span", { class: "grow" }),
        ...(runs.length > 1 ? [h("a", { href: legato.link("compare", 0, 1) }, "compare")] : []),
        ...(live ? [h("a", { href: "#/live" }, "live")] : []),
        h("button", { type: "button", title: "keys ( ? )", onclick: help }, "?"));
      document.querySelector("main").replaceChildren(...page.body.flat().filter(Boolean));
      window.scrollTo(0, 0);
      if (page.shown) page.shown();
    } catch (error) {
      if (mine === turn) legato.fail(error);
    }
  }

  // The page once more, from what is known by now, scrolled to where it is.
  legato.reopen = async () => {
    const at = window.scrollY;
    await open();
    window.scrollTo(0, at);
  };

  function help() {
    const dialog = document.querySelector("dialog");
    dialog.replaceChildren(h("h2", {}, "Keys"),
      h("dl", { class: "pairs" }, HELP.map(([keys, text]) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, text)])),
      h("form", { method: "dialog" }, h("button", {}, "Close")));
    dialog.showModal();
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "Enter" && event.target.matches("a, button, summary")) return;
    const act = event.key === "?" ? help : page && page.keys && page.keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  document.body.append(h("header", {}), h("main", {}, h("p", { class: "empty" }, "loading…")), h("dialog", {}));
  window.addEventListener("hashchange", open);
  window.addEventListener("keydown", press);
  open();
  legato.load("runs").then(({ live }) => live && legato.follow(() => page), legato.fail);
})();
