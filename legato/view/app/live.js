"use strict";

// The desktops as they are now. Asks the server once a second, only while the page is looked at.
(() => {
  const { h } = legato;
  const EVERY_MS = 1000;

  const NAMES = {
    reset: ["phase-reset", "task set-up"],
    settle: ["phase-settle", "first screen"],
    model: ["phase-model", "asking the model"],
    act: ["phase-act", "acting"],
    grade: ["phase-grade", "grading"],
  };

  function tile(key, board, desktop, old) {
    const [cls, words] = NAMES[desktop.phase] || ["phase-other", desktop.phase];
    const shot = desktop.screenshot;
    const sha = shot && /^[0-9a-f]{64}$/.test(shot.sha256) ? shot.sha256 : null;
    const box = h("div", { class: "shot", style: legato.ratio(shot) });
    // The picture that is there stays until the next one is, so that nothing flickers.
    const before = old && old.querySelector("canvas");
    if (before && before.dataset.sha === sha) box.append(before);
    else if (sha) {
      const canvas = legato.thumb(`live/${key}/${board.name}/${sha}.png`, `desktop ${desktop.slot}`, shot, 560, before);
      canvas.dataset.sha = sha;
      box.append(canvas);
    }
    if (shot && desktop.actions.length) {
      box.append(legato.overlay(desktop.actions, board.screen || [shot.width, shot.height]));
    }
    const since = legato.seconds(Math.max(0, Date.now() / 1000 - desktop.since));
    return h("figure", { class: "desktop", "data-key": `${key}/${board.name}/${desktop.slot}` }, box,
      h("figcaption", {},
        h("span", { class: `swatch ${cls}` }), h("b", {}, `${desktop.slot} `), words,
        h("span", { class: "note" }, ` ${since} · step ${desktop.steps + 1}`),
        h("div", {}, desktop.rollout_id),
        h("div", { class: "said" }, desktop.reply)));
  }

  function tally(board) {
    const lost = Object.entries(board.lost).map(([kind, n]) => `${kind} ${n}`).join(", ");
    return legato.tiles([
      ["verdicts", `${board.verdicts}/${board.wanted}`], ["groups", `${board.groups_done}/${board.groups}`],
      ["mean reward", legato.number(board.mean_reward)], ["per hour", legato.number(board.per_hour)],
      ["to go", legato.seconds(board.eta_s)], ["lost", lost || "none"],
    ]);
  }

  legato.livePage = async () => {
    const { runs, live } = await legato.load("runs");
    if (!live) throw new Error("this viewer does not follow its run; start it with --live");
    const place = h("div", {});
    const counts = runs.map(() => -1);
    let timer = 0;
    let gone = false;
    const look = async () => {
      const answer = await fetch("live.json");
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const state = await answer.json();
      if (gone) return;
      const old = new Map([...place.querySelectorAll(".desktop")].map((d) => [d.dataset.key, d]));
      place.replaceChildren(...state.runs.map((run, key) => h("section", { class: "card wide" },
        h("h2", {}, h("a", { href: legato.link("run", key) }, runs[key].name),
          h("span", { class: "count" }, ` ${run.records} rollouts recorded`)),
        run.boards.length ? run.boards.map((board) => [tally(board),
          h("div", { class: "desktops" }, board.desktops.map((desktop) =>
            tile(key, board, desktop, old.get(`${key}/${board.name}/${desktop.slot}`))))])
          : legato.empty("nobody is collecting into this run now"))));
      await Promise.all(state.runs.map((run, key) => {
        const grown = counts[key] >= 0 && run.records !== counts[key];
        counts[key] = run.records;
        return grown ? legato.run(String(key), { fresh: true }) : null;
      }));
    };
    const turn = async () => {
      try {
        if (!document.hidden) await look();
      } catch (error) {
        if (!gone) place.replaceChildren(h("p", { class: "error" }, `no answer: ${error.message}`));
      }
      if (!gone) timer = setTimeout(turn, EVERY_MS);
    };
    await turn();
    return {
      title: "live", crumbs: [["#/live", "live"]], body: [place],
      left: () => { gone = true; clearTimeout(timer); },
    };
  };
})();
