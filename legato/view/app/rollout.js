"use strict";

// One rollout: verdict, film strip, waterfall, and the step that is looked at.
(() => {
  const { h } = legato;

  function waterfall(detail, open) {
    const t = detail.timing;
    const rows = [];
    let at = 0;
    const add = (label, parts, number) => {
      const length = parts.reduce((sum, p) => sum + p.value, 0);
      if (length > 0) rows.push({ label, parts, from: at, number });
      at += length;
    };
    const one = (name, value) => [legato.phase(name, value)];
    const sum = (parts, i) => parts.reduce((total, p) => total + p[i].value, 0);
    const steps = detail.steps.map(legato.stepParts);
    add("reset", [...one("reset_s", t.reset_s), ...one("wait_after_reset_s", t.wait_after_reset_s),
      ...one("obs_s", Math.max(0, t.obs_s - sum(steps, 3)))]);
    steps.forEach((parts, i) => add(`step ${i + 1}`, parts, i));
    add("model, given up", one("model_s", Math.max(0, t.model_s - sum(steps, 0) - 0.05)));
    add("grade", [...one("wait_before_eval_s", t.wait_before_eval_s), ...one("eval_s", t.eval_s)]);
    const total = Math.max(t.total_s, at) || 1;
    return h("ol", { class: "waterfall" }, rows.map((row) => h("li", {
      class: row.number === open ? "current" : null,
      onclick: row.number === undefined ? null : () => legato.goStep(row.number),
    }, h("span", { class: "name" }, row.label),
    h("span", { class: "track" }, h("span", { class: "offset", style: { width: `${(100 * row.from) / total}%` } }),
      row.parts.map((p) => h("span", {
        class: p.cls, style: { width: `${(100 * p.value) / total}%` }, title: `${p.name}: ${legato.seconds(p.value)}`,
      }))),
    h("span", { class: "value" }, legato.seconds(row.parts.reduce((s, p) => s + p.value, 0))))));
  }

  function strip(run, row, detail) {
    return h("nav", { class: "strip", "aria-label": "film strip" }, legato.cells(run, row, detail));
  }

  function head(run, row, detail) {
    const error = detail.error ? h("p", { class: "error" }, `${detail.error.kind}: ${detail.error.message}`) : null;
    const extra = Object.keys(detail.extra).length
      ? h("details", {}, h("summary", {}, "Extra"),
        h("pre", { class: "text" }, JSON.stringify(detail.extra, null, 1))) : null;
    return h("section", { class: "card wide verdict" },
      h("div", { class: "facts" },
        legato.rewardChip(row.reward), legato.badge(row),
        h("span", {}, `advantage ${legato.signed(row.advantage)}`),
        h("span", {}, legato.count(row.steps, "step")), h("span", {}, legato.seconds(row.total_s)),
        h("span", {}, `desktop ${row.slot ?? "–"}`),
        h("span", {}, `version ${detail.policy.versions.join(", ")}`),
        h("span", {}, `harness ${detail.harness}`),
        h("span", {}, legato.moment(detail.started_at))),
      h("div", { class: "sides" },
        h("div", {}, detail.instruction ? h("p", { class: "instruction" }, detail.instruction) : null, error),
        h("div", {}, detail.score ? h("p", {}, detail.score.output) : null, legato.checks(detail.score))),
      extra);
  }

  // Rollouts before and after this one, in the order of the table that was last looked at.
  function neighbour(run, row, by) {
    const list = run.listed && run.listed.includes(row) ? run.listed : run.rows;
    return list[list.indexOf(row) + by];
  }

  legato.rolloutPage = async (key, rolloutId, stepText) => {
    const run = await legato.run(key);
    const row = run.byId.get(rolloutId);
    if (!row) throw new Error(`run ${run.name} has no rollout ${rolloutId}`);
    const detail = await legato.rollout(run, row);
    const last = detail.steps.length - 1;
    let open = Math.max(0, Math.min(last, Number.parseInt(stepText || "0", 10) || 0));
    let main = 0;
    const place = h("div", { class: "step" });
    const film = h("div", {});
    const fall = h("div", {});
    const show = () => {
      if (last < 0) return place.replaceChildren(legato.empty("no step was made"));
      place.replaceChildren(
        h("h2", { class: "wide" }, `Step ${open + 1} of ${last + 1}`),
        legato.stepPictures(run, detail, open, main, (view) => { main = view; show(); }),
        legato.stepText(run, row, detail, open));
      return fall.replaceChildren(waterfall(detail, open));
    };
    const mark = () => {
      const cells = film.querySelectorAll(".thumb");
      cells.forEach((cell, i) => cell.classList.toggle("current", i === open));
      const nav = film.firstElementChild, cell = cells[open];
      if (cell) nav.scrollLeft = cell.offsetLeft - nav.offsetLeft - nav.clientWidth / 2 + cell.clientWidth / 2;
    };
    const go = (number) => {
      if (number < 0 || number > last || number === open) return;
      open = number;
      history.replaceState(null, "", legato.rolloutLink(run, row, open));
      show();
      mark();
    };
    legato.goStep = go;
    film.append(strip(run, row, detail));
    film.addEventListener("click", (event) => {
      const cell = event.target.closest("a.thumb");
      if (!cell || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go([...film.querySelectorAll(".thumb")].indexOf(cell));
    });
    show();
    const visit = (by) => {
      const next = neighbour(run, row, by);
      if (next) location.hash = legato.rolloutLink(run, next);
    };
    const view = (number) => () => { main = number; show(); };
    return {
      title: `${row.rollout_id} · ${run.name}`,
      crumbs: [[legato.link("run", run.key), run.name], [legato.groupLink(run, row.group_id), row.group_id],
        [legato.rolloutLink(run, row), `attempt ${row.attempt}${row.attempt_try ? `.${row.attempt_try}` : ""}`]],
      keys: {
        ArrowRight: () => go(open + 1), ArrowLeft: () => go(open - 1), l: () => go(open + 1), h: () => go(open - 1),
        Home: () => go(0), End: () => go(last), "1": view(0), "2": view(1), "3": view(2),
        "[": () => visit(-1), "]": () => visit(1),
        g: () => { location.hash = legato.groupLink(run, row.group_id); },
        u: () => { location.hash = legato.link("run", run.key); },
      },
      body: [head(run, row, detail), film, place,
        last < 0 ? null : legato.section("Waterfall", fall)],
      shown: mark,
    };
  };
})();
