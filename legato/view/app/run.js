"use strict";

// The page of a run: figures, charts, and the table of its rollouts.
(() => {
  const { h } = legato;
  const BATCH = 200; // rows added to the table each time its end comes into view

  legato.figures = (run) => {
    const verdicts = run.rows.filter((r) => r.verdictCounts && r.reward !== null);
    const lost = run.rows.filter((r) => r.status === "error" || r.status === "retried");
    // As `profile` reckons: the time between an interrupted session and the next is nobody's.
    const wall = run.sessions.reduce((sum, s) => sum + s.seconds, 0);
    return {
      verdicts: verdicts.length,
      success: legato.mean(verdicts.map((r) => (r.reward >= 1 ? 1 : 0))),
      reward: legato.mean(verdicts.map((r) => r.reward)),
      steps: legato.mean(verdicts.map((r) => r.steps)),
      seconds: legato.mean(verdicts.map((r) => r.total_s)),
      lost: lost.length,
      groups: run.groups.size,
      wall,
      perHour: wall > 0 ? (3600 * verdicts.length) / wall : null,
      invalid: run.rows.reduce((sum, r) => sum + r.invalid, 0),
    };
  };

  legato.figureTiles = (run) => {
    const f = legato.figures(run);
    return legato.tiles([
      ["success", legato.percent(f.success), `of ${f.verdicts} verdicts`],
      ["mean reward", legato.number(f.reward)],
      ["groups", f.groups, run.group ? `of ${run.group} verdicts each` : null],
      ["rollouts", run.rows.length, f.lost ? `${f.lost} lost` : "none lost"],
      ["steps", legato.number(f.steps), "per verdict"],
      ["time", legato.seconds(f.seconds), "per verdict"],
      ["verdicts per hour", f.perHour === null ? "–" : Math.round(f.perHour),
        `over ${legato.seconds(f.wall)}${run.sessions.length > 1 ? ` in ${run.sessions.length} sessions` : ""}`],
      ["invalid actions", f.invalid],
    ]);
  };

  const COLUMNS = [
    "rollout", "task", "status", "reward", "advantage", "steps", "time", "model", "version",
    "verdict or error",
  ];

  function tableRow(run, row) {
    const model = row.phases_s[run.phases.indexOf("model_s")];
    return h("tr", { "data-n": row.n },
      h("td", {}, h("a", { href: legato.rolloutLink(run, row) }, row.rollout_id)),
      h("td", {}, h("a", { href: legato.groupLink(run, row.group_id) }, row.task_id)),
      h("td", {}, legato.badge(row)),
      h("td", { class: "num" }, legato.rewardChip(row.reward)),
      h("td", { class: "num" }, legato.signed(row.advantage)),
      h("td", { class: "num" }, row.steps),
      h("td", { class: "num" }, legato.seconds(row.total_s)),
      h("td", { class: "num" }, row.total_s ? legato.percent(model / row.total_s) : "–"),
      h("td", {}, row.version),
      h("td", { class: row.error_kind ? "said error" : "said" },
        row.error_kind ? `${row.error_kind}: ${row.error}` : row.verdict));
  }

  // Adds rows as the end of the table comes near; thousands of rows cost nothing until then.
  function growingTable(run, rows) {
    const body = h("tbody", {});
    const end = h("div", { class: "end" });
    let shown = 0;
    const more = () => {
      body.append(...rows.slice(shown, shown + BATCH).map((row) => tableRow(run, row)));
      shown = Math.min(rows.length, shown + BATCH);
      end.textContent = shown < rows.length ? `${rows.length - shown} more` : "";
    };
    more();
    const watcher = new IntersectionObserver((seen) => {
      if (seen.some((s) => s.isIntersecting) && shown < rows.length) more();
    }, { rootMargin: "600px" });
    watcher.observe(end);
    const table = h("table", { class: "rollouts" },
      h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col" }, name)))), body);
    return h("div", { class: "scroller" }, table, end);
  }

  // Replaces the figures and charts; lists in them stay scrolled to where they are.
  function showCharts(place, run) {
    const tops = [...place.querySelectorAll(".tall")].map((list) => list.scrollTop);
    place.replaceChildren(legato.figureTiles(run), legato.runCharts(run));
    place.querySelectorAll(".tall").forEach((list, i) => { list.scrollTop = tops[i] || 0; });
  }

  legato.runPage = async (key, query) => {
    const run = await legato.run(key);
    const filters = legato.readFilters(query);
    const charts = h("div", { class: "stacked" });
    const news = h("div", {});
    const place = h("div", {});
    const count = h("span", { class: "count" });
    let asked = 0;
    const show = (hits, note) => {
      const rows = legato.filtered(run, filters, hits);
      run.listed = rows;
      count.textContent = `${rows.length} of ${run.rows.length} rollouts${note || ""}`;
      place.replaceChildren(rows.length ? growingTable(run, rows) : legato.empty("no rollout matches"));
    };
    const refresh = () => {
      const mine = ++asked;
      if (!filters.text) return show(null);
      show(new Set(), ", searching…");
      return legato.search(run, filters.text,
        (hits, done) => show(hits, done ? "" : ", searching…"), () => mine === asked);
    };
    const change = (name, value) => {
      filters[name] = value;
      const next = new URLSearchParams(Object.entries(filters).filter(([, v]) => v)).toString();
      history.replaceState(null, "", legato.link("run", run.key) + (next ? `?${next}` : ""));
      refresh().catch?.(legato.fail);
    };
    const searching = refresh();
    if (searching) searching.catch(legato.fail);
    showCharts(charts, run);
    // Figures follow by themselves; the table, which may be being read, when it is told to.
    const follow = async () => {
      const now = await legato.run(key);
      const more = now.rows.length - run.rows.length;
      if (more <= 0 || Number(news.dataset.more) === more) return;
      news.dataset.more = more;
      showCharts(charts, now);
      news.replaceChildren(h("button", { type: "button", onclick: legato.reopen },
        `show ${legato.count(more, "new rollout")}`));
    };
    return {
      title: run.name,
      crumbs: [[legato.link("run", run.key), run.name]],
      keys: { "/": () => document.querySelector("input[type=search]").focus(), ...tableKeys(place) },
      follow,
      body: [
        charts,
        h("section", { class: "card wide" },
          h("h2", {}, "Rollouts ", count), news, legato.filterBar(run, filters, change), place),
        settings(run),
      ],
    };
  };

  function tableKeys(place) {
    const move = (by) => {
      const rows = [...place.querySelectorAll("tbody tr")];
      const at = rows.findIndex((r) => r.classList.contains("current"));
      const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
      if (!next) return;
      if (at >= 0) rows[at].classList.remove("current");
      next.classList.add("current");
      next.scrollIntoView({ block: "nearest" });
    };
    const open = () => place.querySelector("tr.current a")?.click();
    return { j: () => move(1), k: () => move(-1), Enter: open };
  }

  function flat(value, prefix = "") {
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      return [[prefix, JSON.stringify(value)]];
    }
    return Object.entries(value).flatMap(([k, v]) => flat(v, prefix ? `${prefix}.${k}` : k));
  }

  function settings(run) {
    const sessions = run.sessions.map((s, i) => {
      const end = s.ended_at ? legato.moment(s.ended_at) : "open, or killed";
      return [`session ${i}`, `${legato.moment(s.started_at)} – ${end}`];
    });
    return h("details", { class: "card wide" }, h("summary", {}, "Settings"),
      h("dl", { class: "pairs" }, [...flat(run.settings), ...sessions].map(([name, value]) =>
        [h("dt", {}, name), h("dd", {}, value)])));
  }

  legato.runsPage = async () => {
    const { runs, live } = await legato.load("runs");
    if (runs.length === 1) return legato.runPage("0", new URLSearchParams());
    const all = await Promise.all(runs.map((_, key) => legato.run(String(key))));
    return {
      title: "runs",
      crumbs: [],
      body: all.map((run) => legato.section(
        h("a", { href: legato.link("run", run.key) }, run.name), legato.figureTiles(run),
        h("p", {}, all.filter((other) => other !== run).map((other) => [
          h("a", { href: legato.link("compare", run.key, other.key) }, `compare with ${other.name}`), " "]),
        live ? h("a", { href: "#/live" }, "live") : null))),
    };
  };
})();
