"use strict";

// What went in and out of the model, token by token.
(() => {
  const { h } = legato;
  const STEPS = [0.9, 0.7, 0.5, 0.3, 0.15, 0.05, 0.01]; // probabilities between the shades

  // logprob: undefined where the server told none, null where it was no finite number.
  const shade = (logprob) => {
    if (logprob === undefined) return "unknown";
    if (logprob === null) return "broken";
    const p = Math.exp(logprob);
    const at = STEPS.findIndex((step) => p >= step);
    return String(at < 0 ? STEPS.length : at);
  };

  const visible = (text) => text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");

  function token(text, id, logprob, masked) {
    const shown = text === undefined || text === null ? `${id} ` : visible(text);
    const known = logprob === undefined ? "" : logprob === null ? " · logprob not finite"
      : ` · logprob ${logprob.toFixed(4)} · p ${(100 * Math.exp(logprob)).toFixed(2)}%`;
    const title = `${id === undefined ? "" : `id ${id}`}${masked ? " · masked" : known}`;
    return h("span", { class: masked ? "token masked" : `token p${shade(logprob)}`, title }, shown);
  }

  legato.replyTokens = (step) => {
    const { ids, tokens, logprobs } = step;
    const count = (ids || tokens || []).length;
    if (!count) return legato.empty("the server reported no tokens");
    const spans = [];
    for (let i = 0; i < count; i += 1) {
      spans.push(token(tokens ? tokens[i] : null, ids ? ids[i] : undefined, logprobs ? logprobs[i] : undefined, false));
    }
    return h("pre", { class: "tokens" }, spans);
  };

  legato.promptTokens = (step) => {
    if (!step.prompt_ids) return legato.empty("the ids of the prompt are not known");
    const spans = step.prompt_ids.map((id, i) =>
      token(step.prompt_tokens ? step.prompt_tokens[i] : null, id, undefined, true));
    const kept = step.prefix_len
      ? h("span", { class: "note" }, `… ${step.prefix_len} tokens of the steps before … `) : null;
    return h("pre", { class: "tokens" }, kept, spans);
  };

  legato.tokenLegend = (row) => {
    const trained = row.advantage === null || row.advantage === undefined
      ? "not trained: no verdict"
      : row.advantage === 0 ? "trained tokens, advantage 0: no gradient"
        : `trained, advantage ${legato.signed(row.advantage)}`;
    return h("p", { class: "note token-legend" },
      "probability ", h("span", { class: "token p0" }, "> 90%"), " ",
      h("span", { class: "token p2" }, "50%"), " ", h("span", { class: "token p4" }, "15%"), " ",
      h("span", { class: "token p7" }, "< 1%"), " · coloured: ", trained, " · ",
      h("span", { class: "token masked" }, "grey"), ": masked");
  };
})();
