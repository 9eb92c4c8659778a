"use strict";

// Two runs against each other.
(() => {
  const { h } = legato;
  const verdictsOf = (run) => run.rows.filter((r) => r.verdictCounts && r.reward !== null);
  const success = (rows) => legato.mean(rows.map((r) => (r.reward >= 1 ? 1 : 0)));

  function figures(a, b) {
    const fa = legato.figures(a), fb = legato.figures(b);
    const lines = [
      ["success", "success", legato.percent], ["mean reward", "reward", legato.number],
      ["verdicts", "verdicts", legato.number], ["lost", "lost", legato.number],
      ["steps per verdict", "steps", legato.number], ["time per verdict", "seconds", legato.seconds],
      ["verdicts per hour", "perHour", legato.number], ["invalid actions", "invalid", legato.number],
    ];
    const titles = ["", a.name, b.name, "change"].map((t) => h("th", { class: "num" }, t));
    return h("table", { class: "figures" }, h("thead", {}, h("tr", {}, titles)),
      h("tbody", {}, lines.map(([name, key, format]) => h("tr", {}, h("th", { scope: "row" }, name),
        h("td", { class: "num" }, format(fa[key])), h("td", { class: "num" }, format(fb[key])),
        h("td", { class: "num" }, fa[key] === null || fb[key] === null ? "–"
          : (fb[key] >= fa[key] ? "+" : "−") + format(Math.abs(fb[key] - fa[key])))))));
  }

  const taskNames = (a, b, key) => [...new Set([...verdictsOf(a), ...verdictsOf(b)].map((r) => key(r.task_id)))];

  function tasks(a, b, key) {
    const of = [a, b].map((run) => legato.byKey(verdictsOf(run), (r) => key(r.task_id)));
    const lines = taskNames(a, b, key).map((name) => {
      const rows = of.map((tasksOf) => tasksOf.get(name) || []);
      const rates = rows.map(success), rewards = rows.map((r) => legato.mean(r.map((x) => x.reward)));
      const change = rewards.includes(null) ? null : rewards[1] - rewards[0];
      return { name, rows, rates, rewards, change };
    }).sort((x, y) => (x.change ?? 0) - (y.change ?? 0) || (x.name < y.name ? -1 : 1));
    const cell = (run, line, i) => h("td", { class: "num" }, line.rows[i].length
      ? h("a", { href: legato.link("run", run.key) + `?task=${encodeURIComponent(line.name)}` },
        `${legato.percent(line.rates[i])} · ${legato.number(line.rewards[i])} (${line.rows[i].length})`) : "–");
    const titles = ["task", `${a.name}: success · reward (n)`, b.name, "reward"];
    const direction = (change) => (change > 0 ? "up" : change < 0 ? "down" : "");
    return h("div", { class: "tall" }, h("table", {},
      h("thead", {}, h("tr", {}, titles.map((t, i) => h("th", { class: i ? "num" : null }, t)))),
      h("tbody", {}, lines.map((line) => h("tr", {},
        h("td", {}, line.name), cell(a, line, 0), cell(b, line, 1),
        h("td", { class: `num ${direction(line.change)}` }, legato.signed(line.change)))))));
  }

  function rewards(a, b) {
    const shares = [a, b].map((run) => {
      const rows = verdictsOf(run);
      return legato.rewardBins(rows).map((n) => n / (rows.length || 1));
    });
    return legato.columns(shares[0].map((_, i) => ({
      label: (i / (shares[0].length - 1)).toFixed(1),
      parts: [
        { cls: "series-a", name: a.name, value: shares[0][i] },
        { cls: "series-b", name: b.name, value: shares[1][i] },
      ],
    })), { yFormat: legato.percent });
  }

  function times(run) {
    const total = run.rows.reduce((sum, r) => sum + r.total_s, 0);
    const parts = run.phases.map((name, i) =>
      legato.phase(name, run.rows.reduce((sum, r) => sum + r.phases_s[i], 0)));
    return [h("h3", {}, run.name), legato.stack(parts, total)];
  }

  function settings(a, b) {
    const text = (value) => JSON.stringify(value);
    const differing = [];
    const walk = (x, y, name) => {
      if (text(x) === text(y)) return;
      if (x && y && typeof x === "object" && typeof y === "object" && !Array.isArray(x)) {
        for (const key of new Set([...Object.keys(x), ...Object.keys(y)])) {
          walk(x[key], y[key], name ? `${name}.${key}` : key);
        }
      } else differing.push([name, text(x), text(y)]);
    };
    walk(a.settings, b.settings, "");
    if (!differing.length) return legato.empty("the same");
    return h("table", { class: "settings" }, h("tbody", {}, differing.map(([name, x, y]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, x ?? "–"), h("td", {}, y ?? "–")))));
  }

  legato.comparePage = async (first, second) => {
    const [a, b] = await Promise.all([legato.run(first), legato.run(second)]);
    const same = (taskId) => taskId;
    const byKind = taskNames(a, b, legato.taskKind).length < taskNames(a, b, same).length;
    return {
      title: `${a.name} and ${b.name}`,
      crumbs: [[legato.link("compare", first, second), `${a.name} and ${b.name}`]],
      body: [h("div", { class: "charts" },
        legato.section("Figures", figures(a, b)),
        legato.section("Rewards", legato.legend([["series-a", a.name], ["series-b", b.name]]), rewards(a, b)),
        legato.section("Where the time went", times(a), times(b),
          legato.legend(a.phases.map((name) => legato.PHASES[name]))),
        legato.section("Settings that differ", settings(a, b))),
      byKind ? h("section", { class: "card wide" },
        h("h2", {}, "By kind of task"), tasks(a, b, legato.taskKind)) : null,
      h("section", { class: "card wide" }, h("h2", {}, "By task, worst change first"), tasks(a, b, same))],
    };
  };
})();
