"use strict";

// The attempts of one group side by side.
(() => {
  const { h } = legato;

  legato.checks = (score) => {
    if (!score) return null;
    return h("ul", { class: "checks" }, score.checks.map((check) =>
      h("li", { class: check.passed ? "passed" : "failed" },
        h("span", { class: "mark" }, check.passed ? "✓" : "✗"),
        h("span", { class: "kind" }, check.kind), " ", check.name,
        check.share !== null && check.share !== undefined ? ` (${legato.percent(check.share)})` : "",
        check.detail ? h("span", { class: "detail" }, ` ${check.detail}`) : null)));
  };

  legato.actionsOf = (step) => step.actions.filter((a) => a.action).map((a) => a.action);

  legato.saidOf = (step) => step.actions.map((a) =>
    [legato.describe(a.action), a.error ? `! ${a.error}` : ""].filter(Boolean).join(" ")).join("; ") || "no action";

  function column(run, row, detail) {
    const head = [
      h("h3", {}, h("a", { href: legato.rolloutLink(run, row) }, `attempt ${row.attempt}`),
        row.attempt_try ? ` try ${row.attempt_try}` : ""),
      h("p", {}, legato.rewardChip(row.reward), " ", legato.badge(row)),
      h("p", { class: "note" }, [`advantage ${legato.signed(row.advantage)}`,
        legato.count(row.steps, "step"), legato.seconds(row.total_s)].join(" · ")),
      row.error_kind ? h("p", { class: "error" }, `${row.error_kind}: ${row.error}`) : null,
      h("p", { class: "note" }, row.verdict),
    ];
    if (!detail) return h("div", { class: "attempt" }, head);
    return h("div", { class: "attempt" }, head, legato.checks(detail.score), legato.cells(run, row, detail));
  }

  // A small picture for every step, with its actions, and one for the end.
  legato.cells = (run, row, detail) => {
    const cells = detail.steps.map((step, i) => {
      const image = step.image === null ? null : detail.images[step.image];
      return h("a", { class: "thumb", href: legato.rolloutLink(run, row, i) },
        legato.shown(run, image, legato.actionsOf(step), detail.screen, `step ${i + 1}`),
        h("span", { class: "caption" }, `${i + 1}  ${legato.saidOf(step)}`));
    });
    const end = legato.imageNamed(detail, detail.final_screenshot);
    if (!end) return cells;
    return [...cells, h("div", { class: "thumb" },
      legato.shown(run, end, [], detail.screen, "end"), h("span", { class: "caption" }, "end"))];
  };

  // The last screenshot of a rollout may be in no prompt; its size is then that of the others.
  legato.imageNamed = (detail, sha256) => {
    if (!sha256) return null;
    return detail.images.find((image) => image.sha256 === sha256)
      || { sha256, width: detail.images[0]?.width, height: detail.images[0]?.height };
  };

  function warning(run, rewards) {
    if (rewards.length < run.min_group) {
      return h("p", { class: "note" }, "Too few verdicts for advantages: this group is not trained.");
    }
    if (Math.min(...rewards) < Math.max(...rewards)) return null;
    return h("p", { class: "note" },
      "All rewards are the same: every advantage is 0, nothing is learned from this group.");
  }

  legato.groupPage = async (key, groupId) => {
    const run = await legato.run(key);
    const rows = run.groups.get(groupId);
    if (!rows) throw new Error(`run ${run.name} has no group ${groupId}`);
    const details = await Promise.all(rows.map((row) => (row.steps ? legato.rollout(run, row) : null)));
    const told = details.find((d) => d && d.instruction);
    const rewards = rows.filter((r) => r.verdictCounts && r.reward !== null).map((r) => r.reward);
    const ids = [...run.groups.keys()];
    const go = (by) => {
      const next = ids[ids.indexOf(groupId) + by];
      if (next !== undefined) location.hash = legato.groupLink(run, next);
    };
    return {
      title: groupId,
      crumbs: [[legato.link("run", run.key), run.name], [legato.groupLink(run, groupId), groupId]],
      keys: { "[": () => go(-1), "]": () => go(1), u: () => { location.hash = legato.link("run", run.key); } },
      body: [
        told ? h("p", { class: "instruction" }, told.instruction) : null,
        legato.tiles([
          ["verdicts", `${rewards.length}${run.group ? ` of ${run.group}` : ""}`],
          ["mean reward", legato.number(legato.mean(rewards))],
          ["success", legato.percent(legato.mean(rewards.map((r) => (r >= 1 ? 1 : 0))))],
          ["tries", rows.length],
        ]),
        warning(run, rewards),
        h("div", { class: "attempts" }, rows.map((row, i) => column(run, row, details[i]))),
      ],
    };
  };
})();
