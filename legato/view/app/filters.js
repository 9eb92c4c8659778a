"use strict";

// The filters of a run's table. They live in the address, so that a filtered table can be linked.
(() => {
  const { h } = legato;

  legato.readFilters = (query) => ({
    status: query.get("status") || "",
    task: query.get("task") || "",
    reward: query.get("reward") || "",
    error: query.get("error") || "",
    text: query.get("text") || "",
    sort: query.get("sort") || "",
  });

  // Tasks that differ by their number alone are of one kind: "suite/task/17" of "suite/task/*".
  legato.taskKind = (taskId) => taskId.replace(/\d+$/, "*");

  const REWARDS = {
    "1": ["success (1)", (r) => r !== null && r >= 1],
    part: ["partial", (r) => r !== null && r > 0 && r < 1],
    "0": ["zero", (r) => r === 0],
    none: ["no verdict", (r) => r === null],
  };

  const ERRORS = {
    any: ["any error", (row) => row.error_kind !== null],
    policy: ["policy", (row) => row.error_kind === "policy"],
    env: ["env", (row) => row.error_kind === "env"],
    grade: ["grade", (row) => row.error_kind === "grade"],
    action: ["invalid actions", (row) => row.invalid > 0],
  };

  const SORTS = {
    "": ["as recorded", (a, b) => a.n - b.n],
    reward: ["reward, low first", (a, b) => (a.reward ?? -1) - (b.reward ?? -1)],
    "-reward": ["reward, high first", (a, b) => (b.reward ?? -1) - (a.reward ?? -1)],
    "-time": ["slowest first", (a, b) => b.total_s - a.total_s],
    "-steps": ["most steps first", (a, b) => b.steps - a.steps],
    group: ["group", (a, b) => (a.group_id < b.group_id ? -1 : a.group_id > b.group_id ? 1 : a.attempt - b.attempt)],
  };

  // hits: numbers of the rollouts whose replies hold the text, null while that is not asked
  legato.filtered = (run, filters, hits) => {
    const rows = run.rows.filter((row) =>
      (!filters.status || row.status === filters.status)
      && (!filters.task || row.task_id === filters.task || legato.taskKind(row.task_id) === filters.task)
      && (!REWARDS[filters.reward] || REWARDS[filters.reward][1](row.reward))
      && (!ERRORS[filters.error] || ERRORS[filters.error][1](row))
      && (!hits || hits.has(row.n)));
    const order = SORTS[filters.sort] || SORTS[""];
    return filters.sort ? rows.sort((a, b) => order[1](a, b) || a.n - b.n) : rows;
  };

  function choice(name, label, options, value, change) {
    return h("label", {}, h("span", {}, label),
      h("select", { name, onchange: (e) => change(name, e.target.value) },
        options.map(([key, text]) =>
          h("option", { value: key, selected: key === value }, text))));
  }

  const named = (table) => Object.entries(table).map(([key, [text]]) => [key, text]);
  const counted = (values) => {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    return [...counts].sort().map(([value, n]) => [value, `${value} (${n})`]);
  };

  const tasks = (run) => {
    const each = counted(run.rows.map((r) => r.task_id));
    const kinds = counted(run.rows.map((r) => legato.taskKind(r.task_id)));
    return kinds.length < each.length ? [...kinds, ...each] : each;
  };

  legato.filterBar = (run, filters, change) => {
    const box = h("input", {
      type: "search", name: "text", value: filters.text, placeholder: "text in replies  ( / )",
      onchange: (e) => change("text", e.target.value),
    });
    return h("form", { class: "filters", onsubmit: (e) => { e.preventDefault(); box.blur(); } },
      choice("status", "status", [["", "all"], ...counted(run.rows.map((r) => r.status))], filters.status, change),
      choice("task", "task", [["", "all"], ...tasks(run)], filters.task, change),
      choice("reward", "reward", [["", "all"], ...named(REWARDS)], filters.reward, change),
      choice("error", "error", [["", "all"], ...named(ERRORS)], filters.error, change),
      choice("sort", "sort", named(SORTS), filters.sort, change),
      h("label", { class: "grow" }, h("span", {}, "replies"), box));
  };
})();
