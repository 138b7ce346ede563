"use strict";
// Draws a view (hvdchart/watch/view_model.py). Each text in it is a stranger's: it is only ever set as
// the text of an element, and no markup is made of one.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const SVG = "http://www.w3.org/2000/svg";
  const TONES = {
    running: "busy", finished: "good", finishing: "busy", waiting: "wait", retrying: "wait",
    failed: "bad", "not found": "bad", suspended: "none",
  };
  const ROW_TONES = { Running: "good", Stalled: "odd", Ended: "none", Succeeded: "none", Failed: "bad" };
  const KINDS = {
    attempt: "attempt", fault: "fault", stall: "stall", warning: "warning", end: "end", stage: "stage",
  };
  const PERIODS = {
    waiting: "waiting for pods", training: "training", lost: "lost to a fault", ending: "ending",
  };
  // What each kind of mark looks like, in a box of 14 by 14: the shape, not the colour alone, tells.
  const SHAPES = {
    attempt: ["M4 2.5 L11.5 7 L4 11.5 Z", true],
    fault: ["M3 3 L11 11 M11 3 L3 11", false],
    stall: ["M4.5 3 V11 M9.5 3 V11", false],
    warning: ["M7 2 V8 M7 11.5 V11.6", false],
    end: ["M2.5 7.5 L5.8 11 L11.5 3.5", false],
    stage: ["M7 5.4 A1.6 1.6 0 1 0 7.01 5.4 Z", true],
  };
  const SHOWN_MARKS = data.widget ? 3 : 6;
  let view = data.view;
  let showsAll = false;
  let isConnected = true;
  // How far this machine's clock is ahead of that of the program that read the run.
  let ahead = 0;

  // Pixels inside of a card: pictures are drawn in them, so that their texts have one size.
  function room() {
    const style = getComputedStyle(page);
    const inner = page.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return Math.max(240, inner - (window.innerWidth > 640 ? 42 : 34));
  }
  function put(node, parts) {
    for (const part of parts.flat()) {
      if (part === null || part === undefined) continue;
      node.append(part instanceof Node ? part : document.createTextNode(String(part)));
    }
    return node;
  }
  function h(tag, kind, ...parts) {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    return put(node, parts);
  }
  function s(tag, attributes, ...parts) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return put(node, parts);
  }
  const whole = (n) => Math.round(n).toLocaleString("en");
  const fine = (n) => (Math.abs(n) >= 1000 || (n !== 0 && Math.abs(n) < 0.001)
    ? n.toExponential(2) : String(Number(n.toPrecision(4))));
  const speed = (n) => (n >= 100 ? whole(n) : String(Number(n.toPrecision(3))));
  const two = (n) => String(n).padStart(2, "0");
  function clock(at, withSeconds = true) {
    const d = new Date(at * 1000);
    const text = `${two(d.getHours())}:${two(d.getMinutes())}`;
    return withSeconds ? `${text}:${two(d.getSeconds())}` : text;
  }
  function lasting(seconds) {
    const n = Math.max(0, Math.round(seconds));
    if (n < 60) return `${n} s`;
    if (n < 3600) return `${Math.floor(n / 60)} min ${n % 60 ? `${n % 60} s` : ""}`.trim();
    if (n < 172800) return `${Math.floor(n / 3600)} h ${Math.floor((n % 3600) / 60)} min`;
    return `${(n / 86400).toFixed(1)} d`;
  }
  function memory(bytes) {
    const mi = bytes / 1048576;
    return mi >= 10240 ? `${(mi / 1024).toFixed(1)} Gi` : `${whole(mi)} Mi`;
  }
  const pill = (tone, text, more = "") => h("span", `pill ${tone} ${more}`, h("i"), text);
  function card(title, aside, ...parts) {
    const head = h("div", "title", h("h2", "", title), aside ? h("span", "soft", aside) : null);
    return h("section", "card", head, ...parts);
  }
  function icon(kind, size = 14) {
    const [path, isFull] = SHAPES[kind];
    return s("svg", { viewBox: "0 0 14 14", width: size, height: size, class: `is-${kind}`,
      role: "img", "aria-label": KINDS[kind] },
    s("path", { d: path, class: isFull ? "sign full" : "sign" }));
  }

  function drawHeader() {
    const facts = [pill(TONES[view.state] || "none", view.state, view.over ? "" : "live")];
    if (view.seconds !== null) {
      const time = h("span", "soft number", elapsed());
      time.id = "elapsed";
      facts.push(time);
    }
    if (data.live && !isConnected && !view.over) facts.push(pill("bad", "connection lost", "small"));
    return h("header", "",
      h("div", "where", h("h1", "", view.name), h("p", "soft", `namespace ${view.namespace}`)),
      h("div", "facts", ...facts));
  }
  function elapsed() {
    if (view.started === null) return "";
    const now = data.live && !view.over ? Date.now() / 1000 - ahead : view.now;
    return lasting((view.ended ?? now) - view.started);
  }
  function drawNotes() {
    const notes = [];
    if (view.stall) {
      const stall = view.stall;
      const on = stall.worker ? ` on ${stall.worker}` : "";
      notes.push(h("div", "note odd",
        h("b", "", `Rank ${stall.rank}${on} keeps the others waiting since ${clock(stall.since)} or earlier`),
        h("span", "more", `It ${stall.what}${stall.place ? ", at " : "."}`,
          stall.place ? h("span", "mono", stall.place) : null)));
    }
    if (view.reason) {
      const tone = view.state === "failed" || view.state === "not found" ? "bad" : "wait";
      notes.push(h("div", `note ${tone}`, h("b", "", view.reason),
        view.remedy ? h("span", "more", `What to do: ${view.remedy}`) : null));
    }
    return notes;
  }
  function tile(label, value, unit) {
    return h("div", "tile", h("div", "value", value, unit ? h("small", "", ` ${unit}`) : null),
      h("div", "label", label));
  }
  function drawProgress() {
    const told = view.progress;
    const tiles = [];
    const parts = [];
    if (told) {
      const of = told.steps ? ` of ${whole(told.steps)}` : "";
      const share = told.steps ? Math.min(1, told.step / told.steps) : null;
      if (share !== null) {
        const done = h("div", "done");
        done.style.width = `${100 * share}%`;
        const bar = h("div", "bar", done);
        bar.setAttribute("role", "progressbar");
        bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
        bar.setAttribute("aria-label", "steps");
        parts.push(h("div", "progress", h("span", "step number", `Step ${whole(told.step)}${of}`),
          h("span", "share number", `${Math.floor(100 * share)} %`)), bar);
      } else {
        tiles.push(tile("Step", whole(told.step)));
      }
      if (told.loss !== null) {
        tiles.push(tile("Loss", typeof told.loss === "number" ? fine(told.loss) : told.loss));
      }
      if (told.samples_per_second !== null) {
        tiles.push(tile("Samples per second", speed(told.samples_per_second)));
      }
      const idle = Math.max(told.idle_seconds, view.stall ? view.now - view.stall.since : 0);
      if (view.stall || (!view.over && idle > 60)) tiles.push(tile("Without a step", lasting(idle)));
      else if (!view.over && told.seconds_left !== null) tiles.push(tile("Left, about", lasting(told.seconds_left)));
    }
    if (view.over && view.seconds !== null) tiles.push(tile("Duration", elapsed()));
    if (!view.over && view.state !== "finishing") {
      tiles.push(tile("Workers up", String(view.workers_ready), `of ${view.workers_wanted}`));
    }
    if (view.attempts) tiles.push(tile("Attempt", String(view.attempt), `of ${view.attempts}`));
    if (!told && !view.over) {
      parts.push(h("p", "soft", "The script has not reported a step yet."));
    }
    const grid = h("div", "tiles", ...tiles);
    if (parts.length && !told) grid.style.marginTop = "14px";
    return h("section", "card", ...parts, grid);
  }

  function ticks(low, high, most) {
    const extent = high - low || Math.abs(high) || 1;
    const rough = extent / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) {
      found.push(Number(at.toPrecision(12)));
    }
    return found;
  }
  function drawCurve() {
    const losses = view.losses;
    if (losses.length < 2) return null;
    const width = room(), height = 220, left = 46, right = 8, top = 8, bottom = 30;
    const first = losses[0][0];
    const last = Math.max(losses.at(-1)[0], first + 1);
    const values = losses.map(([, loss]) => loss);
    let low = Math.min(...values), high = Math.max(...values);
    const marks = ticks(low, high, 5);
    if (high === low) { high += 1; low -= 1; }
    low -= (high - low) * 0.06;
    high += (high - low) * 0.04;
    const x = (step) => left + (width - left - right) * (step - first) / (last - first);
    const y = (loss) => top + (height - top - bottom) * (high - loss) / (high - low);
    const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `loss by step, from ${fine(values[0])} to ${fine(values.at(-1))}` });
    for (const loss of marks) {
      picture.append(s("line", { x1: left, x2: width - right, y1: y(loss), y2: y(loss), class: "gridline" }),
        s("text", { x: left - 10, y: y(loss) + 4, "text-anchor": "end" }, fine(loss)));
    }
    for (const step of ticks(first, last, Math.max(2, width / 130))) {
      const anchor = x(step) > width - 24 ? "end" : "middle";
      picture.append(s("text", { x: x(step), y: height - 6, "text-anchor": anchor }, whole(step)));
    }
    const points = losses.map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`);
    const base = height - bottom;
    picture.append(
      s("path", { d: `M${x(first)},${base} L${points.join(" L")} L${x(losses.at(-1)[0])},${base} Z`, class: "area" }),
      s("path", { d: `M${points.join(" L")}`, class: "curve" }));
    const dot = s("circle", { r: 5, class: "dot" });
    const cross = s("line", { y1: top, y2: base, class: "cross", visibility: "hidden" });
    picture.append(cross, dot);
    const section = card("Loss", " ", picture);
    const aside = section.querySelector(".title .soft");
    aside.classList.add("number");
    function point(index, isHovered) {
      const [step, loss] = losses[index];
      dot.setAttribute("cx", x(step));
      dot.setAttribute("cy", y(loss));
      cross.setAttribute("x1", x(step));
      cross.setAttribute("x2", x(step));
      cross.setAttribute("visibility", isHovered ? "visible" : "hidden");
      aside.textContent = `${fine(loss)} at step ${whole(step)}`;
    }
    point(losses.length - 1, false);
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * width;
      let nearest = 0;
      losses.forEach(([step], index) => {
        if (Math.abs(x(step) - at) < Math.abs(x(losses[nearest][0]) - at)) nearest = index;
      });
      point(nearest, true);
    });
    picture.addEventListener("pointerleave", () => point(losses.length - 1, false));
    return section;
  }

  function drawTimeLine() {
    if (!view.spans.length) return null;
    const width = room(), height = 78, top = 26, thick = 22;
    const begin = view.spans[0].begin;
    const end = Math.max(view.spans.at(-1).end, begin + 1);
    const x = (at) => width * Math.min(1, Math.max(0, (at - begin) / (end - begin)));
    const picture = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": "the time line of the run, whose marks are listed below" });
    const clip = s("clipPath", { id: "ends" }, s("rect", { x: 0, y: top, width, height: thick, rx: 6 }));
    const bars = s("g", { "clip-path": "url(#ends)" });
    for (const span of view.spans) {
      const from = x(span.begin);
      const bar = s("rect", { x: from, y: top, width: Math.max(2, x(span.end) - from - 1.5), height: thick, class: span.period });
      const of = span.attempt ? `, attempt ${span.attempt}` : "";
      bar.append(s("title", {}, `${PERIODS[span.period]}${of}: ${lasting(span.end - span.begin)}`));
      bars.append(bar);
    }
    picture.append(clip, bars);
    let free = -Infinity;
    for (const mark of view.marks) {
      if (mark.kind === "stage") continue;
      const at = Math.min(width - 8, Math.max(8, x(mark.at)));
      // Marks of the same moment would cover one another.
      if (at - free < 5) continue;
      free = at;
      const [path, isFull] = SHAPES[mark.kind];
      picture.append(s("g", { class: `is-${mark.kind}`, transform: `translate(${at - 8} 4) scale(1.14)` },
        s("path", { d: path, class: isFull ? "sign full" : "sign" }), s("title", {}, `${clock(mark.at)} ${mark.text}`)));
    }
    const extent = end - begin;
    const names = width > 560 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
    for (const part of names) {
      const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
      picture.append(s("text", { x: part * width, y: height - 8, "text-anchor": anchor },
        clock(begin + part * extent, extent < 1200)));
    }
    const periods = [...new Set(view.spans.map((span) => span.period))];
    const kinds = [...new Set(view.marks.map((mark) => mark.kind))].filter((kind) => kind !== "stage");
    const legend = h("div", "legend",
      periods.map((period) => h("span", "", s("svg", { viewBox: "0 0 10 10" },
        s("rect", { width: 10, height: 10, rx: 3, class: period })), PERIODS[period])),
      kinds.map((kind) => h("span", "", icon(kind, 12), KINDS[kind])));
    const told = showsAll ? view.marks : view.marks.slice(-SHOWN_MARKS);
    const list = h("ol", "marks", told.toReversed().map((mark) => {
      const time = h("time", "", clock(mark.at));
      time.dateTime = new Date(mark.at * 1000).toISOString();
      return h("li", "", time, icon(mark.kind), h("p", "", mark.text));
    }));
    const section = card("Time line", null, picture, legend, list);
    section.querySelector(".title").append(h("span", "soft number", lasting(extent)));
    if (view.marks.length > SHOWN_MARKS) {
      const more = h("a", "more", showsAll ? "show the last ones" : `show all ${view.marks.length}`);
      more.href = "#";
      more.addEventListener("click", (event) => {
        event.preventDefault();
        showsAll = !showsAll;
        draw();
      });
      section.append(more);
    }
    return section;
  }

  function meter(share, text) {
    const done = h("div", "done");
    done.style.width = `${100 * Math.min(1, share)}%`;
    return h("span", "meter", h("span", "", text), h("div", "bar", done));
  }
  function shares(ends) {
    const [low, high] = ends.map((share) => Math.round(100 * share));
    return low === high ? `${high} %` : `${low}–${high} %`;
  }
  function podName(name) {
    const prefix = `${view.name}-`;
    return name.startsWith(prefix) ? [h("span", "prefix", prefix), name.slice(prefix.length)] : name;
  }
  // Leaves out of the table of ranks what is needed least, until the table fits into its card.
  function fitRanks() {
    const table = page.querySelector("table");
    for (const left of table ? ["no-prefix", "tight", "no-bars", "no-node"] : []) {
      if (table.offsetWidth <= room()) return;
      table.classList.add(left);
    }
  }
  function drawRanks() {
    const rows = view.rows;
    if (!rows.length) return null;
    const most = Math.max(1, ...rows.map((row) => row.memory ?? 0));
    const fastest = Math.max(1e-9, ...rows.map((row) => row.rate ?? 0));
    const columns = [
      ["Rank", "", (row) => (row.rank === null ? h("span", "soft", "–") : h("b", "number", row.rank)), () => true],
      ["State", "", (row) => pill(ROW_TONES[row.state] || "wait", row.state, "small"), () => true],
      ["Step", "right", (row) => (row.step === null ? "" : whole(row.step)), (row) => row.step !== null],
      ["Samples/s", "right", (row) => (row.rate === null ? "" : meter(row.rate / fastest, speed(row.rate))), (row) => row.rate !== null],
      ["CPU", "right", (row) => (row.cpus === null ? "" : row.cpus.toFixed(2)), (row) => row.cpus !== null],
      ["Memory", "right", (row) => (row.memory === null ? "" : meter(row.memory / most, memory(row.memory))), (row) => row.memory !== null],
      ["GPU", "right", (row) => (row.gpu_shares ? meter(row.gpu_shares[1], shares(row.gpu_shares)) : ""), (row) => row.gpu_shares],
      ["GPU memory", "right", (row) => (row.gpu_memory ? meter(row.gpu_memory[0] / row.gpu_memory[1], memory(row.gpu_memory[0])) : ""), (row) => row.gpu_memory],
      ["Pod", "", (row) => podName(row.pod), () => true],
      ["Node", "node", (row) => row.node, (row) => row.node],
    ].filter(([, , , has]) => rows.some(has));
    const head = h("tr", "", columns.map(([name, kind]) => {
      const cell = h("th", kind, name);
      cell.scope = "col";
      return cell;
    }));
    const body = rows.map((row) => h("tr", "", columns.map(([, kind, cell]) => h("td", kind, cell(row)))));
    const ranks = rows.filter((row) => row.rank !== null).length + view.more_rows;
    const section = card("Ranks", ranks ? `${ranks}` : "",
      h("div", "scroll", h("table", "", h("thead", "", head), h("tbody", "", body))));
    if (view.more_rows) section.append(h("p", "soft below", `and ${view.more_rows} more`));
    if (view.usage_problem) section.append(h("p", "soft below", `No CPU and memory: ${view.usage_problem}`));
    return section;
  }

  function drawLog() {
    // A cell of a notebook has what the ranks print below.
    if (!view.log.length || data.widget) return null;
    const text = h("pre", "", view.log.join("\n"));
    text.id = "log";
    text.tabIndex = 0;
    return card("Log", "the last lines of the master", text);
  }
  // Made once: a reader has opened some of them.
  const sections = data.sections.map((section) =>
    h("details", "card", h("summary", "", section.title), h("pre", "", section.text)));
  function drawFooter() {
    const at = new Date(view.now * 1000);
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(view.now)}`;
    return h("footer", "", h("span", "", `as of ${day}`), h("span", "", `hvdchart ${data.version}`));
  }

  function draw() {
    const before = document.getElementById("log");
    const isAtEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8;
    const was = before ? before.scrollTop : 0;
    const parts = [drawHeader(), ...drawNotes(), drawProgress(), drawCurve(), drawTimeLine(), drawRanks(),
      drawLog(), ...sections, drawFooter()];
    page.replaceChildren(...parts.filter((part) => part !== null));
    fitRanks();
    const log = document.getElementById("log");
    if (log) log.scrollTop = isAtEnd ? log.scrollHeight : was;
    document.title = `${view.name}: ${view.state}`;
  }

  if (data.widget) document.body.className = "widget";
  draw();
  let drawn = room();
  new ResizeObserver(() => {
    if (room() === drawn) return;
    drawn = room();
    draw();
  }).observe(page);
  if (data.live && !view.over) {
    ahead = Date.now() / 1000 - view.now;
    const source = new EventSource("events");
    source.addEventListener("message", (event) => {
      view = JSON.parse(event.data);
      ahead = Date.now() / 1000 - view.now;
      isConnected = true;
      draw();
      if (view.over) source.close();
    });
    source.addEventListener("open", () => { isConnected = true; draw(); });
    source.addEventListener("error", () => { isConnected = false; draw(); });
    setInterval(() => {
      const time = document.getElementById("elapsed");
      if (time) time.textContent = elapsed();
    }, 1000);
  }
})();
