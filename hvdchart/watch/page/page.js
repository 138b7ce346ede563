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
  function cardWidth() {
    const style = getComputedStyle(page);
    const inner = page.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return Math.max(240, inner - (window.innerWidth > 640 ? 42 : 34));
  }
  function appendParts(node, parts) {
    for (const part of parts.flat()) {
      if (part === null || part === undefined) continue;
      node.append(part instanceof Node ? part : document.createTextNode(String(part)));
    }
    return node;
  }
  function element(tag, kind, ...parts) {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    return appendParts(node, parts);
  }
  function svgElement(tag, attributes, ...parts) {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return appendParts(node, parts);
  }
  const formatWhole = (n) => Math.round(n).toLocaleString("en");
  const formatPrecise = (n) => (Math.abs(n) >= 1000 || (n !== 0 && Math.abs(n) < 0.001)
    ? n.toExponential(2) : String(Number(n.toPrecision(4))));
  const formatSpeed = (n) => (n >= 100 ? formatWhole(n) : String(Number(n.toPrecision(3))));
  const twoDigits = (n) => String(n).padStart(2, "0");
  function formatTime(at, withSeconds = true) {
    const d = new Date(at * 1000);
    const text = `${twoDigits(d.getHours())}:${twoDigits(d.getMinutes())}`;
    return withSeconds ? `${text}:${twoDigits(d.getSeconds())}` : text;
  }
  function formatDuration(seconds) {
    const n = Math.max(0, Math.round(seconds));
    if (n < 60) return `${n} s`;
    if (n < 3600) return `${Math.floor(n / 60)} min ${n % 60 ? `${n % 60} s` : ""}`.trim();
    if (n < 172800) return `${Math.floor(n / 3600)} h ${Math.floor((n % 3600) / 60)} min`;
    return `${(n / 86400).toFixed(1)} d`;
  }
  function formatMemory(bytes) {
    const mi = bytes / 1048576;
    return mi >= 10240 ? `${(mi / 1024).toFixed(1)} Gi` : `${formatWhole(mi)} Mi`;
  }
  const makePill = (tone, text, more = "") => element("span", `pill ${tone} ${more}`, element("i"), text);
  function makeCard(title, aside, ...parts) {
    const head = element("div", "title", element("h2", "", title), aside ? element("span", "soft", aside) : null);
    return element("section", "card", head, ...parts);
  }
  function makeIcon(kind, size = 14) {
    const [path, isFull] = SHAPES[kind];
    return svgElement("svg", { viewBox: "0 0 14 14", width: size, height: size, class: `is-${kind}`,
      role: "img", "aria-label": KINDS[kind] },
    svgElement("path", { d: path, class: isFull ? "sign full" : "sign" }));
  }

  function drawHeader() {
    const facts = [makePill(TONES[view.state] || "none", view.state, view.over ? "" : "live")];
    if (view.seconds !== null) {
      const time = element("span", "soft number", formatElapsed());
      time.id = "elapsed";
      facts.push(time);
    }
    if (data.live && !isConnected && !view.over) facts.push(makePill("bad", "connection lost", "small"));
    return element("header", "",
      element("div", "where", element("h1", "", view.name), element("p", "soft", `namespace ${view.namespace}`)),
      element("div", "facts", ...facts));
  }
  function formatElapsed() {
    if (view.started === null) return "";
    const now = data.live && !view.over ? Date.now() / 1000 - ahead : view.now;
    return formatDuration((view.ended ?? now) - view.started);
  }
  function drawNotes() {
    const notes = [];
    if (view.stall) {
      const stall = view.stall;
      const worker = stall.worker ? ` on ${stall.worker}` : "";
      notes.push(element("div", "note odd",
        element("b", "", `Rank ${stall.rank}${worker} keeps the others waiting since ${formatTime(stall.since)} or earlier`),
        element("span", "more", `It ${stall.what}${stall.place ? ", at " : "."}`,
          stall.place ? element("span", "mono", stall.place) : null)));
    }
    if (view.reason) {
      const tone = view.state === "failed" || view.state === "not found" ? "bad" : "wait";
      notes.push(element("div", `note ${tone}`, element("b", "", view.reason),
        view.remedy ? element("span", "more", `What to do: ${view.remedy}`) : null));
    }
    return notes;
  }
  function makeTile(label, value, unit) {
    return element("div", "tile", element("div", "value", value, unit ? element("small", "", ` ${unit}`) : null),
      element("div", "label", label));
  }
  function drawProgress() {
    const progress = view.progress;
    const tiles = [];
    const parts = [];
    if (progress) {
      const total = progress.steps ? ` of ${formatWhole(progress.steps)}` : "";
      const share = progress.steps ? Math.min(1, progress.step / progress.steps) : null;
      if (share !== null) {
        const done = element("div", "done");
        done.style.width = `${100 * share}%`;
        const bar = element("div", "bar", done);
        bar.setAttribute("role", "progressbar");
        bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
        bar.setAttribute("aria-label", "steps");
        parts.push(element("div", "progress", element("span", "step number", `Step ${formatWhole(progress.step)}${total}`),
          element("span", "share number", `${Math.floor(100 * share)} %`)), bar);
      } else {
        tiles.push(makeTile("Step", formatWhole(progress.step)));
      }
      if (progress.loss !== null) {
        tiles.push(makeTile("Loss", typeof progress.loss === "number" ? formatPrecise(progress.loss) : progress.loss));
      }
      if (progress.samples_per_second !== null) {
        tiles.push(makeTile("Samples per second", formatSpeed(progress.samples_per_second)));
      }
      const idle = Math.max(progress.idle_seconds, view.stall ? view.now - view.stall.since : 0);
      if (view.stall || (!view.over && idle > 60)) tiles.push(makeTile("Without a step", formatDuration(idle)));
      else if (!view.over && progress.seconds_left !== null) tiles.push(makeTile("Left, about", formatDuration(progress.seconds_left)));
    }
    if (view.over && view.seconds !== null) tiles.push(makeTile("Duration", formatElapsed()));
    if (!view.over && view.state !== "finishing") {
      tiles.push(makeTile("Workers up", String(view.workers_ready), `of ${view.workers_wanted}`));
    }
    if (view.attempts) tiles.push(makeTile("Attempt", String(view.attempt), `of ${view.attempts}`));
    if (!progress && !view.over) {
      parts.push(element("p", "soft", "The script has not reported a step yet."));
    }
    const grid = element("div", "tiles", ...tiles);
    if (parts.length && !progress) grid.style.marginTop = "14px";
    return element("section", "card", ...parts, grid);
  }

  function chooseTicks(low, high, most) {
    const extent = high - low || Math.abs(high) || 1;
    const rough = extent / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const positions = [];
    for (let position = Math.ceil(low / step) * step; position <= high + step * 1e-9; position += step) {
      positions.push(Number(position.toPrecision(12)));
    }
    return positions;
  }
  function drawCurve() {
    const losses = view.losses;
    if (losses.length < 2) return null;
    const width = cardWidth(), height = 220, left = 46, right = 8, top = 8, bottom = 30;
    const first = losses[0][0];
    const last = Math.max(losses.at(-1)[0], first + 1);
    const values = losses.map(([, loss]) => loss);
    let low = Math.min(...values), high = Math.max(...values);
    const marks = chooseTicks(low, high, 5);
    if (high === low) { high += 1; low -= 1; }
    low -= (high - low) * 0.06;
    high += (high - low) * 0.04;
    const x = (step) => left + (width - left - right) * (step - first) / (last - first);
    const y = (loss) => top + (height - top - bottom) * (high - loss) / (high - low);
    const picture = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `loss by step, from ${formatPrecise(values[0])} to ${formatPrecise(values.at(-1))}` });
    for (const loss of marks) {
      picture.append(svgElement("line", { x1: left, x2: width - right, y1: y(loss), y2: y(loss), class: "gridline" }),
        svgElement("text", { x: left - 10, y: y(loss) + 4, "text-anchor": "end" }, formatPrecise(loss)));
    }
    for (const step of chooseTicks(first, last, Math.max(2, width / 130))) {
      const anchor = x(step) > width - 24 ? "end" : "middle";
      picture.append(svgElement("text", { x: x(step), y: height - 6, "text-anchor": anchor }, formatWhole(step)));
    }
    const points = losses.map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`);
    const base = height - bottom;
    picture.append(
      svgElement("path", { d: `M${x(first)},${base} L${points.join(" L")} L${x(losses.at(-1)[0])},${base} Z`, class: "area" }),
      svgElement("path", { d: `M${points.join(" L")}`, class: "curve" }));
    const dot = svgElement("circle", { r: 5, class: "dot" });
    const cross = svgElement("line", { y1: top, y2: base, class: "cross", visibility: "hidden" });
    picture.append(cross, dot);
    const section = makeCard("Loss", " ", picture);
    const aside = section.querySelector(".title .soft");
    aside.classList.add("number");
    function point(index, isHovered) {
      const [step, loss] = losses[index];
      dot.setAttribute("cx", x(step));
      dot.setAttribute("cy", y(loss));
      cross.setAttribute("x1", x(step));
      cross.setAttribute("x2", x(step));
      cross.setAttribute("visibility", isHovered ? "visible" : "hidden");
      aside.textContent = `${formatPrecise(loss)} at step ${formatWhole(step)}`;
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
    const width = cardWidth(), height = 78, top = 26, thick = 22;
    const begin = view.spans[0].begin;
    const end = Math.max(view.spans.at(-1).end, begin + 1);
    const x = (at) => width * Math.min(1, Math.max(0, (at - begin) / (end - begin)));
    const picture = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": "the time line of the run, whose marks are listed below" });
    const clip = svgElement("clipPath", { id: "ends" }, svgElement("rect", { x: 0, y: top, width, height: thick, rx: 6 }));
    const bars = svgElement("g", { "clip-path": "url(#ends)" });
    for (const span of view.spans) {
      const left = x(span.begin);
      const bar = svgElement("rect", { x: left, y: top, width: Math.max(2, x(span.end) - left - 1.5), height: thick, class: span.period });
      const attempt = span.attempt ? `, attempt ${span.attempt}` : "";
      bar.append(svgElement("title", {}, `${PERIODS[span.period]}${attempt}: ${formatDuration(span.end - span.begin)}`));
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
      picture.append(svgElement("g", { class: `is-${mark.kind}`, transform: `translate(${at - 8} 4) scale(1.14)` },
        svgElement("path", { d: path, class: isFull ? "sign full" : "sign" }), svgElement("title", {}, `${formatTime(mark.at)} ${mark.text}`)));
    }
    const extent = end - begin;
    const names = width > 560 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
    for (const part of names) {
      const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
      picture.append(svgElement("text", { x: part * width, y: height - 8, "text-anchor": anchor },
        formatTime(begin + part * extent, extent < 1200)));
    }
    const periods = [...new Set(view.spans.map((span) => span.period))];
    const kinds = [...new Set(view.marks.map((mark) => mark.kind))].filter((kind) => kind !== "stage");
    const legend = element("div", "legend",
      periods.map((period) => element("span", "", svgElement("svg", { viewBox: "0 0 10 10" },
        svgElement("rect", { width: 10, height: 10, rx: 3, class: period })), PERIODS[period])),
      kinds.map((kind) => element("span", "", makeIcon(kind, 12), KINDS[kind])));
    const shownMarks = showsAll ? view.marks : view.marks.slice(-SHOWN_MARKS);
    const list = element("ol", "marks", shownMarks.toReversed().map((mark) => {
      const time = element("time", "", formatTime(mark.at));
      time.dateTime = new Date(mark.at * 1000).toISOString();
      return element("li", "", time, makeIcon(mark.kind), element("p", "", mark.text));
    }));
    const section = makeCard("Time line", null, picture, legend, list);
    section.querySelector(".title").append(element("span", "soft number", formatDuration(extent)));
    if (view.marks.length > SHOWN_MARKS) {
      const more = element("a", "more", showsAll ? "show the last ones" : `show all ${view.marks.length}`);
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

  function makeMeter(share, text) {
    const done = element("div", "done");
    done.style.width = `${100 * Math.min(1, share)}%`;
    return element("span", "meter", element("span", "", text), element("div", "bar", done));
  }
  function formatShares(ends) {
    const [low, high] = ends.map((share) => Math.round(100 * share));
    return low === high ? `${high} %` : `${low}–${high} %`;
  }
  function podName(name) {
    const prefix = `${view.name}-`;
    return name.startsWith(prefix) ? [element("span", "prefix", prefix), name.slice(prefix.length)] : name;
  }
  // Leaves out of the table of ranks what is needed least, until the table fits into its card.
  function fitRanks() {
    const table = page.querySelector("table");
    for (const style of table ? ["no-prefix", "tight", "no-bars", "no-node"] : []) {
      if (table.offsetWidth <= cardWidth()) return;
      table.classList.add(style);
    }
  }
  function drawRanks() {
    const rows = view.rows;
    if (!rows.length) return null;
    const largest = Math.max(1, ...rows.map((row) => row.memory ?? 0));
    const fastest = Math.max(1e-9, ...rows.map((row) => row.rate ?? 0));
    const columns = [
      ["Rank", "", (row) => (row.rank === null ? element("span", "soft", "–") : element("b", "number", row.rank)), () => true],
      ["State", "", (row) => makePill(ROW_TONES[row.state] || "wait", row.state, "small"), () => true],
      ["Step", "right", (row) => (row.step === null ? "" : formatWhole(row.step)), (row) => row.step !== null],
      ["Samples/s", "right", (row) => (row.rate === null ? "" : makeMeter(row.rate / fastest, formatSpeed(row.rate))), (row) => row.rate !== null],
      ["CPU", "right", (row) => (row.cpus === null ? "" : row.cpus.toFixed(2)), (row) => row.cpus !== null],
      ["Memory", "right", (row) => (row.memory === null ? "" : makeMeter(row.memory / largest, formatMemory(row.memory))), (row) => row.memory !== null],
      ["GPU", "right", (row) => (row.gpu_shares ? makeMeter(row.gpu_shares[1], formatShares(row.gpu_shares)) : ""), (row) => row.gpu_shares],
      ["GPU memory", "right", (row) => (row.gpu_memory ? makeMeter(row.gpu_memory[0] / row.gpu_memory[1], formatMemory(row.gpu_memory[0])) : ""), (row) => row.gpu_memory],
      ["Pod", "", (row) => podName(row.pod), () => true],
      ["Node", "node", (row) => row.node, (row) => row.node],
    ].filter(([, , , has]) => rows.some(has));
    const head = element("tr", "", columns.map(([name, kind]) => {
      const cell = element("th", kind, name);
      cell.scope = "col";
      return cell;
    }));
    const body = rows.map((row) => element("tr", "", columns.map(([, kind, cell]) => element("td", kind, cell(row)))));
    const ranks = rows.filter((row) => row.rank !== null).length + view.more_rows;
    const section = makeCard("Ranks", ranks ? `${ranks}` : "",
      element("div", "scroll", element("table", "", element("thead", "", head), element("tbody", "", body))));
    if (view.more_rows) section.append(element("p", "soft below", `and ${view.more_rows} more`));
    if (view.usage_problem) section.append(element("p", "soft below", `No CPU and memory: ${view.usage_problem}`));
    return section;
  }

  function drawLog() {
    // A cell of a notebook has what the ranks print below.
    if (!view.log.length || data.widget) return null;
    const text = element("pre", "", view.log.join("\n"));
    text.id = "log";
    text.tabIndex = 0;
    return makeCard("Log", "the last lines of the master", text);
  }
  // Made once: a reader has opened some of them.
  const sections = data.sections.map((section) =>
    element("details", "card", element("summary", "", section.title), element("pre", "", section.text)));
  function drawFooter() {
    const time = new Date(view.now * 1000);
    const day = `${time.getFullYear()}-${twoDigits(time.getMonth() + 1)}-${twoDigits(time.getDate())} ${formatTime(view.now)}`;
    return element("footer", "", element("span", "", `as of ${day}`), element("span", "", `hvdchart ${data.version}`));
  }

  function draw() {
    const before = document.getElementById("log");
    const isAtEnd = !before || before.scrollTop + before.clientHeight >= before.scrollHeight - 8;
    const scrollTop = before ? before.scrollTop : 0;
    const parts = [drawHeader(), ...drawNotes(), drawProgress(), drawCurve(), drawTimeLine(), drawRanks(),
      drawLog(), ...sections, drawFooter()];
    page.replaceChildren(...parts.filter((part) => part !== null));
    fitRanks();
    const log = document.getElementById("log");
    if (log) log.scrollTop = isAtEnd ? log.scrollHeight : scrollTop;
    document.title = `${view.name}: ${view.state}`;
  }

  if (data.widget) document.body.className = "widget";
  draw();
  let drawn = cardWidth();
  new ResizeObserver(() => {
    if (cardWidth() === drawn) return;
    drawn = cardWidth();
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
      if (time) time.textContent = formatElapsed();
    }, 1000);
  }
})();
