"use strict";

// A run under way: the desktops as they are now, and pages that follow what is recorded. The server
// is asked only while somebody looks.
(() => {
  const { h } = legato;
  const EVERY_MS = 1000;
  const SHOT = 560; // pixels across
  const CALM = 5; // times as long between two looks where no desktops are shown

  const NAMES = {
    reset: ["phase-reset", "task set-up"],
    settle: ["phase-settle", "first screen"],
    model: ["phase-model", "asking the model"],
    act: ["phase-act", "acting"],
    grade: ["phase-grade", "grading"],
    free: ["phase-other", "free"],
  };

  const ask = async () => {
    const answer = await fetch("live.json");
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  };

  // Tells page.follow(), if there is one, how the runs are now; page.lost() why that is not known.
  legato.follow = (current) => {
    let busy = false;
    let ticks = 0;
    setInterval(async () => {
      const page = current();
      ticks += 1;
      if (busy || document.hidden || !page || (page.everySecond ? 0 : ticks % CALM)) return;
      busy = true;
      try {
        const state = await ask();
        await Promise.all(state.runs.map((run, key) => legato.grown(String(key), run.records)));
        if (current() === page && page.follow) await page.follow(state);
      } catch (error) {
        if (current() === page && page.lost) page.lost(error);
      } finally {
        busy = false;
      }
    }, EVERY_MS);
  };

  function tile(id, board, desktop, old) {
    const [cls, words] = NAMES[desktop.phase] || ["phase-other", desktop.phase];
    const shot = desktop.screenshot;
    const sha = shot && /^[0-9a-f]{64}$/.test(shot.sha256) ? shot.sha256 : null;
    const [width, height] = board.screen || [shot?.width, shot?.height];
    const box = h("div", { class: "shot", style: legato.ratio({ width, height }) });
    // The picture that is there stays until the next one is, so that nothing flickers.
    const before = old && old.querySelector("canvas");
    if (before && before.dataset.sha === sha) box.append(before);
    else if (sha) {
      const canvas = legato.thumb(`live/${id.split("/")[0]}/${board.name}/${sha}.png`,
        `desktop ${desktop.slot}`, shot, SHOT, before);
      canvas.dataset.sha = sha;
      box.append(canvas);
    }
    if (shot && desktop.actions.length) box.append(legato.overlay(desktop.actions, [width, height], SHOT));
    const since = legato.seconds(Math.max(0, Date.now() / 1000 - desktop.since));
    const free = desktop.phase === "free";
    return h("figure", { class: `desktop${free ? " free" : ""}`, "data-id": id }, box,
      h("figcaption", {},
        h("span", { class: `swatch ${cls}` }), h("b", {}, `${desktop.slot} `), words,
        h("span", { class: "note" }, ` ${since}${free ? "" : ` · step ${desktop.steps + 1}`}`),
        h("div", {}, desktop.rollout_id),
        h("div", { class: "said" }, desktop.reply)));
  }

  function tally(board) {
    const lost = Object.entries(board.lost).map(([kind, n]) => `${kind} ${n}`).join(", ");
    const done = board.wanted > 0 && board.verdicts >= board.wanted;
    return legato.tiles([
      ...(board.title ? [["batch", board.title]] : []),
      ["verdicts", `${board.verdicts}/${board.wanted}`], ["groups", `${board.groups_done}/${board.groups}`],
      ["mean reward", legato.number(board.mean_reward)], ["per hour", legato.number(board.per_hour)],
      ["to go", done ? "complete" : legato.seconds(board.eta_s)], ["lost", lost || "none"],
    ]);
  }

  legato.livePage = async () => {
    const { runs, live } = await legato.load("runs");
    if (!live) throw new Error("this viewer does not follow its run; start it with --live");
    const place = h("div", { class: "stacked" });
    let seen = new Map();

    // A desktop is between two rollouts for a moment only. Its place stays, or the grid would jump.
    function desktopsOf(key, board) {
      const prefix = `${key}/${board.name}/`;
      const now = new Map(board.desktops.map((desktop) => [prefix + desktop.slot, desktop]));
      for (const [id, desktop] of seen) {
        if (!id.startsWith(prefix) || now.has(id)) continue;
        const since = desktop.phase === "free" ? desktop.since : Date.now() / 1000;
        now.set(id, { ...desktop, phase: "free", since, actions: [] });
      }
      return [...now].sort(([, a], [, b]) => a.slot - b.slot);
    }

    const follow = (state) => {
      const old = new Map([...place.querySelectorAll(".desktop")].map((d) => [d.dataset.id, d]));
      const shown = new Map();
      place.replaceChildren(...state.runs.map((run, key) => h("section", { class: "card wide" },
        h("h2", {}, h("a", { href: legato.link("run", key) }, runs[key].name),
          h("span", { class: "count" }, ` ${run.records} rollouts recorded`)),
        run.boards.length ? run.boards.map((board) => [tally(board),
          h("div", { class: "desktops" }, desktopsOf(key, board).map(([id, desktop]) => {
            shown.set(id, desktop);
            return tile(id, board, desktop, old.get(id));
          }))])
          : legato.empty("nobody is collecting into this run now"))));
      seen = shown;
    };
    const lost = (error) => place.replaceChildren(h("p", { class: "error" }, `no answer: ${error.message}`));
    await ask().then(follow).catch(lost);
    return { title: "live", crumbs: [["#/live", "live"]], body: [place], follow, lost, everySecond: true };
  };
})();
