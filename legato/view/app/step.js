"use strict";

// One step: what was seen, what was said and done, what came of it, and how long it took.
(() => {
  const { h } = legato;

  legato.stepParts = (step) => {
    const sum = (key) => step.actions.reduce((total, a) => total + a[key], 0);
    return [legato.phase("model_s", step.model.seconds),
      ...["act_s", "wait_s", "obs_s"].map((name) => legato.phase(name, sum(name)))];
  };

  legato.seenAfter = (detail, number) => {
    const next = detail.steps[number + 1];
    if (next) return next.image === null ? null : detail.images[next.image];
    return legato.imageNamed(detail, detail.final_screenshot);
  };

  // Pixels across: all that a picture has, and enough beside the large one.
  const FULL = 4096, SIDE = 640;
  const VIEWS = ["seen, with the action", "after", "difference"];

  // main: which of the three pictures is the large one
  legato.stepPictures = (run, detail, number, main, choose) => {
    const step = detail.steps[number];
    const before = step.image === null ? null : detail.images[step.image];
    const after = legato.seenAfter(detail, number);
    const make = [
      (wide) => legato.shown(run, before, legato.actionsOf(step), detail.screen, "what the policy saw", wide),
      (wide) => legato.shown(run, after, [], detail.screen, "after the action", wide),
      (wide) => legato.difference(run, before, after, wide),
    ];
    const figure = (view, cls) => h("figure", { class: cls, onclick: () => choose(view) },
      make[view](cls === "main" ? FULL : SIDE), h("figcaption", {}, h("kbd", {}, String(view + 1)), " ", VIEWS[view]));
    const others = [0, 1, 2].filter((view) => view !== main);
    return h("div", { class: "pictures" }, figure(main, "main"),
      h("div", { class: "others" }, others.map((view) => figure(view, "other"))));
  };

  function actions(step) {
    if (!step.actions.length) return legato.empty("no action");
    return h("ol", { class: "actions" }, step.actions.map((a) => h("li", {},
      h("code", {}, legato.describe(a.action) || "unreadable"),
      a.error ? h("span", { class: "error" }, ` ${a.error}`) : null,
      a.ready_reason === "none" ? null
        : h("span", { class: "note" }, ` ready: ${a.ready_reason}, ${legato.seconds(a.wait_s)}`))));
  }

  function part(run, detail, one) {
    if (one.text !== undefined) return h("pre", { class: "text" }, one.text);
    const image = legato.imageNamed(detail, one.image);
    return h("div", { class: "inline-picture" },
      legato.shown(run, image, [], detail.screen, "a picture of the prompt", 520));
  }

  function message(run, detail, index) {
    const { role, parts } = detail.messages[index];
    return h("div", { class: `message role-${["system", "user", "assistant"].includes(role) ? role : "missing"}` },
      h("span", { class: "role" }, role), parts.map((one) => part(run, detail, one)));
  }

  // Opened messages are made when they are opened: a prompt of 20 pictures costs nothing before.
  function folded(title, make) {
    const details = h("details", {}, h("summary", {}, title));
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) details.append(make());
    });
    return details;
  }

  function prompt(run, detail, number) {
    const step = detail.steps[number];
    const before = new Set(number ? detail.steps[number - 1].request : []);
    const old = step.request.filter((m) => before.has(m));
    const fresh = step.request.filter((m) => !before.has(m));
    const show = (list) => h("div", {}, list.map((m) => message(run, detail, m)));
    return [
      old.length ? folded(`${old.length} messages of the steps before`, () => show(old)) : null,
      show(fresh),
    ];
  }

  function facts(detail, step) {
    const m = step.model;
    const version = step.version_last ? `${step.version} → ${step.version_last}` : step.version;
    const cached = m.cached_tokens === null ? "" : ` (${m.cached_tokens} cached)`;
    const pairs = [
      ["policy version", version],
      ["finish", step.finish_reason],
      ["tokens", `${legato.number(m.prompt_tokens)} in${cached}, ${legato.number(m.completion_tokens)} out`],
      ["model call", `${legato.seconds(m.seconds)}${m.attempts > 1 ? `, ${m.attempts} attempts` : ""}`],
      ["sampling", Object.entries(step.sampling).map(([k, v]) => `${k} ${JSON.stringify(v)}`).join(", ")],
    ];
    if (step.gap) {
      const [, mean, largest] = step.gap;
      pairs.push(["trainer − server", mean === null || largest === null ? "not finite"
        : `mean ${mean.toExponential(1)}, largest ${largest.toExponential(1)} nats`]);
    }
    return h("dl", { class: "pairs" }, pairs.map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
  }

  function brokenTokens(step) {
    const count = (step.logprobs || []).filter((logprob) => logprob === null).length;
    return count ? h("p", { class: "error" }, `not finite: ${legato.count(count, "logprob")}`) : null;
  }

  legato.stepText = (run, row, detail, number) => {
    const step = detail.steps[number];
    const parts = legato.stepParts(step);
    return h("div", { class: "step-text" },
      legato.section("Action", actions(step)),
      legato.section("Reply",
        step.reasoning ? h("pre", { class: "text reasoning" }, step.reasoning) : null,
        h("pre", { class: "text" }, step.content)),
      legato.section("Reply, token by token", legato.tokenLegend(row), brokenTokens(step),
        legato.replyTokens(step)),
      legato.section("Time",
        legato.stack(parts), legato.legend(parts.map((p) => [p.cls, `${p.name} ${legato.seconds(p.value)}`]))),
      legato.section("Facts", facts(detail, step)),
      legato.section("Prompt", prompt(run, detail, number)),
      h("section", { class: "card" }, folded("Prompt, token by token", () => legato.promptTokens(step))));
  };
})();
