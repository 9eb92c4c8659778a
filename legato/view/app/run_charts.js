"use strict";

// How a run went and where its time went, from its rows.
(() => {
  const { h } = legato;
  const byStart = (a, b) => a.started_at + a.total_s - (b.started_at + b.total_s);
  const succeeded = (row) => (row.reward >= 1 ? 1 : 0);
  const verdictsOf = (run) => run.rows.filter((r) => r.verdictCounts && r.reward !== null);

  legato.byKey = (rows, key) => {
    const found = new Map();
    for (const row of rows) {
      const name = key(row);
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(row);
    }
    return found;
  };

  function overTime(run) {
    const rows = verdictsOf(run).sort(byStart);
    const bins = Math.min(24, Math.ceil(rows.length / 4));
    const points = { success: [], reward: [] };
    for (let i = 0; i < bins; i += 1) {
      const part = rows.slice(Math.floor((i * rows.length) / bins), Math.floor(((i + 1) * rows.length) / bins));
      if (!part.length) continue;
      const x = bins === 1 ? 0.5 : i / (bins - 1);
      const versions = [...new Set(part.map((r) => r.version))].join(", ");
      const note = (value) => `${legato.number(value)} over ${part.length} verdicts, version ${versions}`;
      const success = legato.mean(part.map(succeeded)), reward = legato.mean(part.map((r) => r.reward));
      points.success.push([x, success, note(success)]);
      points.reward.push([x, reward, note(reward)]);
    }
    const times = rows.length ? [[0, legato.moment(rows[0].started_at).slice(5)],
      [1, legato.moment(rows[rows.length - 1].started_at).slice(5)]] : [];
    return legato.section("Success over time",
      legato.legend([["series-a", "success rate"], ["series-b", "mean reward"]]),
      legato.lines([{ cls: "series-a", name: "success", points: points.success },
        { cls: "series-b", name: "reward", points: points.reward }], { xLabels: times }));
  }

  function successes(run, rows, of) {
    return [...legato.byKey(rows, of)].map(([task, rows]) => {
      const success = legato.mean(rows.map(succeeded));
      const reward = legato.mean(rows.map((r) => r.reward));
      return {
        name: task, value: success, share: success, cls: "series-a", reward,
        note: `${task}: ${legato.percent(success)} of ${rows.length}, mean reward ${legato.number(reward)}`,
        href: legato.link("run", run.key) + `?task=${encodeURIComponent(task)}`,
      };
    }).sort((a, b) => a.value - b.value || a.reward - b.reward || (a.name < b.name ? -1 : 1));
  }

  function byTask(run) {
    const rows = verdictsOf(run);
    const items = successes(run, rows, (r) => r.task_id);
    const kinds = successes(run, rows, (r) => legato.taskKind(r.task_id));
    const note = items.length > 12 ? h("p", { class: "note" }, `${items.length} tasks, hardest first`) : null;
    // Seeds of a task come once each in a training run: it is their kind that can be learned.
    return legato.section("Success by task",
      kinds.length < items.length ? legato.bars(kinds, legato.percent) : null, note,
      h("div", { class: "tall" }, legato.bars(items.slice(0, 200), legato.percent)));
  }

  function byVersion(run) {
    const versions = [...legato.byKey(verdictsOf(run), (r) => r.version)];
    if (versions.length < 2) return null;
    const points = (value) => versions.map(([version, rows], i) => {
      const y = legato.mean(rows.map(value));
      return [i / (versions.length - 1), y, `version ${version}: ${legato.number(y)} over ${rows.length}`];
    });
    const labels = [[0, versions[0][0]], [1, versions[versions.length - 1][0]]];
    return legato.section("Success by policy version",
      legato.legend([["series-a", "success rate"], ["series-b", "mean reward"]]),
      legato.lines([{ cls: "series-a", name: "success", points: points(succeeded) },
        { cls: "series-b", name: "reward", points: points((r) => r.reward) }], { xLabels: labels }));
  }

  legato.rewardBins = (rows, bins = 11) => {
    const counts = new Array(bins).fill(0);
    for (const row of rows) counts[Math.round(row.reward * (bins - 1))] += 1;
    return counts;
  };

  function rewards(run) {
    const counts = legato.rewardBins(verdictsOf(run));
    return legato.section("Rewards", legato.columns(counts.map((value, i) => ({
      label: (i / (counts.length - 1)).toFixed(1), parts: [{ cls: "series-a", value, name: "verdicts" }],
    }))));
  }

  function failures(run) {
    const link = (name, value) => legato.link("run", run.key) + `?${name}=${value}`;
    const count = (test) => run.rows.filter(test).length;
    const items = [
      ...["policy", "env", "grade"].map((kind) => ({
        name: `${kind} error`, value: count((r) => r.error_kind === kind), cls: "bad", href: link("error", kind) })),
      ...["time", "context"].map((by) => ({
        name: `truncated by ${by}`, value: count((r) => r.truncated_by === by), cls: "part",
        href: link("status", "truncated") })),
      { name: "with invalid actions", value: count((r) => r.invalid > 0), cls: "part", href: link("error", "action") },
      ...["cancelled", "surplus", "skipped"].map((s) => ({
        name: s, value: count((r) => r.status === s), cls: "dim", href: link("status", s) })),
    ].filter((item) => item.value);
    const most = Math.max(1, ...items.map((i) => i.value));
    // Messages that differ in numbers only are one kind.
    const kind = (row) => row.error.replace(/[0-9]+/g, "#").slice(0, 120);
    const messages = [...legato.byKey(run.rows.filter((r) => r.error), kind)]
      .sort((a, b) => b[1].length - a[1].length).slice(0, 5);
    return legato.section("Failures by kind",
      items.length ? legato.bars(items.map((i) => ({ ...i, share: i.value / most }))) : legato.empty("none"),
      h("ul", { class: "messages" }, messages.map(([text, rows]) => h("li", {}, `${rows.length} × ${text}`))));
  }

  function timeSplit(run) {
    const total = run.rows.reduce((sum, r) => sum + r.total_s, 0);
    const sums = run.phases.map((_, i) => run.rows.reduce((sum, r) => sum + r.phases_s[i], 0));
    const names = [...run.phases, "other"];
    const values = [...sums, Math.max(0, total - sums.reduce((a, b) => a + b, 0))];
    const parts = names.map((name, i) => legato.phase(name, values[i]));
    const most = Math.max(1e-9, ...values);
    return legato.section("Where the time went", legato.stack(parts, total),
      legato.bars(parts.map((p) => ({
        ...p, value: p.value / (total || 1), share: p.value / most, note: legato.seconds(p.value),
      })), legato.percent));
  }

  function utilisation(run) {
    const rows = run.rows.filter((r) => r.started_at > 0 && r.total_s > 0);
    if (!rows.length) return legato.section("Desktops at work over time", legato.empty("nothing yet"));
    // One session after the other, without the time between them.
    const sessions = new Map();
    let wall = 0;
    for (const session of run.sessions) {
      sessions.set(session.number, { ...session, from: wall });
      wall += session.seconds;
    }
    const bins = 120, width = wall / bins || 1;
    const model = run.phases.indexOf("model_s");
    const asking = new Array(bins).fill(0), working = new Array(bins).fill(0);
    for (const row of rows) {
      const session = sessions.get(row.session);
      if (!session) continue;
      const share = Math.min(1, row.phases_s[model] / row.total_s);
      const from = session.from + Math.max(0, row.started_at - session.started_at);
      const to = Math.min(from + row.total_s, session.from + session.seconds);
      for (let i = Math.floor(from / width); i < bins && i * width < to; i += 1) {
        const busy = (Math.min(to, (i + 1) * width) - Math.max(from, i * width)) / width;
        asking[i] += busy * share;
        working[i] += busy * (1 - share);
      }
    }
    const told = Math.max(0, ...run.sessions.map((s) => s.desktops || 0));
    const peak = Math.max(told, ...asking.map((v, i) => v + working[i]));
    const points = (values) => values.map((v, i) => [i / (bins - 1), v]);
    const leased = width * [...asking, ...working].reduce((a, b) => a + b, 0);
    const there = run.sessions.reduce((sum, s) => sum + s.seconds * (s.desktops || told || peak), 0);
    return legato.section("Desktops at work over time",
      legato.legend([["phase-act", "desktop at work"],
        ["phase-model", "waiting for the model, spread evenly over each rollout"]]),
      legato.areas([{ cls: "phase-act", name: "desktop at work", points: points(working) },
        { cls: "phase-model", name: "waiting for the model", points: points(asking) }],
      { yMax: peak, xLabels: [[0, "0"], [1, legato.seconds(wall)]] }),
      h("p", { class: "note" },
        `${legato.percent(leased / there)} of ${told ? `${told} desktops` : "the most at once"} leased on average`,
        run.sessions.length > 1 ? `; ${run.sessions.length} sessions, without the time between them` : ""));
  }

  function slowest(run) {
    if (!run.slowest.length) return legato.section("Slowest steps", legato.empty("no steps yet"));
    const rows = run.slowest.map(([seconds, n, step, ...parts]) => {
      const row = run.rows[n];
      const stack = ["model_s", "act_s", "wait_s", "obs_s"].map((name, i) => legato.phase(name, parts[i]));
      return h("tr", {},
        h("td", {}, h("a", { href: legato.rolloutLink(run, row, step) }, `${row.rollout_id} step ${step + 1}`)),
        h("td", { class: "num" }, legato.seconds(seconds)),
        h("td", { class: "bar-cell" }, legato.stack(stack, run.slowest[0][0])));
    });
    return legato.section("Slowest steps", h("div", { class: "tall" }, h("table", {}, h("tbody", {}, rows))));
  }

  function gaps(run) {
    if (!run.gaps.length) return null;
    const known = run.gaps.filter((gap) => gap[1] !== null);
    const broken = run.gaps.filter((gap) => gap[4]).map(([turn, , , ok, not]) =>
      `turn ${turn + 1}: ${not} of ${legato.count(ok + not, "rollout")}`);
    const yMax = Math.max(1e-6, ...known.map(([, , max]) => max));
    const last = run.gaps[run.gaps.length - 1][0];
    const series = (i) => known.map((gap) => [last ? gap[0] / last : 0.5, gap[i],
      `turn ${gap[0] + 1}: ${gap[i].toExponential(1)} over ${legato.count(gap[3], "rollout")}`]);
    return legato.section("Trainer against server: logprob gap by turn",
      broken.length ? h("p", { class: "error" }, `not finite: ${broken.join(", ")}`) : null,
      legato.legend([["series-a", "mean |gap|"], ["series-b", "largest"]]),
      legato.lines([{ cls: "series-a", name: "mean", points: series(1) },
        { cls: "series-b", name: "largest", points: series(2) }],
      { yMax, yFormat: (v) => (v ? v.toExponential(0) : "0"), xLabels: last ? [[0, "turn 1"], [1, `turn ${last + 1}`]] : [[0, "turn 1 only"]] }));
  }

  legato.runCharts = (run) => h("div", { class: "charts" },
    [overTime, byTask, byVersion, rewards, failures, timeSplit, utilisation, slowest, gaps].map((chart) => chart(run)));
})();
