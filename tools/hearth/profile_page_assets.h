// The parts of the report page that are the same for every profile: style and script.
#pragma once

#include <string_view>

namespace hearth::cli {

inline constexpr std::string_view kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --back: #ffffff; --text: #1c1d1f; --soft: #5d6166; --grid: #e4e6e8; --box: #f6f7f8;
  --s0: #0072b2; --s1: #d55e00; --s2: #008763; --s3: #b8578c; --s4: #b07800; --s5: #2f94cf;
  --s6: #6b4fa3; --s7: #333333; --cell: 0, 114, 178;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --back: #16181a; --text: #e6e7e9; --soft: #a3a8ae; --grid: #31353a; --box: #1f2225;
    --s0: #5db1e6; --s1: #ff8f4d; --s2: #3fcf9f; --s3: #e79fc8; --s4: #f0b93f; --s5: #9ad3f5;
    --s6: #b8a0e6; --s7: #dcdcdc; --cell: 93, 177, 230;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 24px; max-width: 1128px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 36px 0 4px; }
h3 { font-size: 15px; margin: 12px 0 2px; }
p { margin: 4px 0 10px; max-width: 80ch; }
.soft, figcaption, .note { color: var(--soft); }
code { font-size: 13px; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; padding: 0; list-style: none; }
.facts li { flex: 1 1 200px; background: var(--box); border-radius: 6px; padding: 10px 14px; }
.facts b { display: block; font-size: 22px; }
.pair {
  display: grid; gap: 20px;
  grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
}
figure { margin: 0; }
.chart { width: 100%; height: auto; display: block; }
.chart text { font-size: 12px; fill: var(--text); }
.chart .axis text { fill: var(--soft); }
.chart .axis .title { fill: var(--text); }
.chart .grid { stroke: var(--grid); }
.chart .legend rect { fill: var(--back); fill-opacity: 0.85; stroke: none; }
.line polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.dashed polyline { stroke-dasharray: 7 3; }
.line.faint polyline { stroke: var(--soft); stroke-opacity: 0.45; stroke-width: 1; }
.line.ref polyline { stroke: var(--soft); stroke-dasharray: 3 3; stroke-width: 1.5; }
.line circle { stroke: transparent; stroke-width: 9; }
.line.ref circle { fill: var(--soft); }
.s0 polyline { stroke: var(--s0); } .s0 circle { fill: var(--s0); }
.s1 polyline { stroke: var(--s1); } .s1 circle { fill: var(--s1); }
.s2 polyline { stroke: var(--s2); } .s2 circle { fill: var(--s2); }
.s3 polyline { stroke: var(--s3); } .s3 circle { fill: var(--s3); }
.s4 polyline { stroke: var(--s4); } .s4 circle { fill: var(--s4); }
.s5 polyline { stroke: var(--s5); } .s5 circle { fill: var(--s5); }
.s6 polyline { stroke: var(--s6); } .s6 circle { fill: var(--s6); }
.s7 polyline { stroke: var(--s7); } .s7 circle { fill: var(--s7); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; text-align: right; font-weight: normal; white-space: nowrap; }
th:first-child { text-align: left; }
thead th { color: var(--soft); border-bottom: 1px solid var(--grid); }
tr.sum td, tr.sum th { border-top: 1px solid var(--grid); font-weight: 600; }
.matrix td {
  padding: 3px 2px; min-width: 38px; font-size: 13px; text-align: center;
  background: rgba(var(--cell), var(--v));
}
.matrix thead th {
  padding: 3px 2px; text-align: center; max-width: 48px; overflow: hidden;
  text-overflow: ellipsis; font-size: 13px;
}
.controls { display: flex; flex-wrap: wrap; gap: 16px; margin: 8px 0; }
#heat { display: block; max-width: 100%; }
#tip {
  position: fixed; display: none; pointer-events: none; background: var(--text);
  color: var(--back); border-radius: 4px; padding: 4px 8px; font-size: 13px; z-index: 2;
}
.scale {
  display: flex; align-items: center; gap: 6px; margin: 6px 0; font-size: 12px;
  color: var(--soft);
}
.scale i { display: inline-block; width: 22px; height: 12px; }
footer {
  margin-top: 40px; border-top: 1px solid var(--grid); padding-top: 8px; font-size: 13px;
  color: var(--soft);
}
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 11px; }
  .controls, #tip { display: none; }
  figure, tr, .facts { break-inside: avoid; }
  h2 { break-after: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
)css";

inline constexpr std::string_view kPageScript = R"js(
(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const canvas = document.getElementById('heat');
  const tip = document.getElementById('tip');
  const viewChoice = document.getElementById('view');
  const orderChoice = document.getElementById('order');
  const alphabet = data.alphabet;
  const levelOf = {};
  for (let i = 0; i < alphabet.length; ++i) levelOf[alphabet[i]] = i;
  const rows = data.layers.length, columns = data.experts;
  // Dark blue to yellow: the same order of brightness for every eye.
  const stops = [[0, 32, 77], [49, 68, 107], [102, 105, 112], [149, 143, 120], [203, 186, 105],
                 [255, 234, 70]];
  function ratioOf(level) { return Math.pow(2, (level - 32) / 8); }
  // An eighth of the even share and less is the darkest, eight times and more the brightest.
  function colourOf(level) {
    const at = Math.min(1, Math.max(0, (level - 8) / 48)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at)), part = at - low;
    const mix = stops[low].map((v, i) => Math.round(v + part * (stops[low + 1][i] - v)));
    return 'rgb(' + mix.join(',') + ')';
  }
  let layout = null, shown = [];

  function order(cells) {
    shown = [];
    for (let row = 0; row < rows; ++row) {
      const experts = [];
      for (let e = 0; e < columns; ++e) {
        experts.push({id: e, level: levelOf[cells[row * columns + e]]});
      }
      if (orderChoice.value === 'heat') {
        experts.sort((a, b) => b.level - a.level || a.id - b.id);
      }
      shown.push(experts);
    }
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const dpr = window.devicePixelRatio || 1;
    const label = 34;
    const width = Math.max(320, Math.min(1080, canvas.parentElement.clientWidth));
    const cell = Math.max(1, Math.floor((width - label) * dpr / columns));  // device pixels
    const high = Math.max(6 * dpr, Math.min(20 * dpr, Math.floor(560 * dpr / rows))) | 0;
    canvas.width = Math.ceil(label * dpr) + cell * columns;
    canvas.height = high * rows + Math.ceil(20 * dpr);
    canvas.style.width = canvas.width / dpr + 'px';
    canvas.style.height = canvas.height / dpr + 'px';
    layout = {left: Math.ceil(label * dpr), cell: cell, high: high, dpr: dpr};
    const c = canvas.getContext('2d');
    c.clearRect(0, 0, canvas.width, canvas.height);
    const gap = high > 8 * dpr ? Math.round(dpr) : 0;
    order(data.views[viewChoice.selectedIndex].cells);
    for (let row = 0; row < rows; ++row) {
      for (let e = 0; e < columns; ++e) {
        const level = shown[row][e].level;
        if (level === 0) continue;
        c.fillStyle = colourOf(level);
        c.fillRect(layout.left + e * cell, row * high, cell, high - gap);
      }
    }
    c.fillStyle = style.getPropertyValue('--soft');
    c.font = 11 * dpr + 'px system-ui, sans-serif';
    c.textAlign = 'right';
    c.textBaseline = 'middle';
    const every = Math.max(1, Math.ceil(13 * dpr / high));
    for (let row = 0; row < rows; ++row) {
      if (row % every !== 0 && row !== rows - 1) continue;
      if (row !== rows - 1 && rows - 1 - row < every) continue;
      c.fillText(data.layers[row], layout.left - 5 * dpr, row * high + high / 2);
    }
    c.textBaseline = 'top';
    c.textAlign = 'left';
    const heat = orderChoice.value === 'heat';
    c.fillText(heat ? 'hottest' : 'expert 0', layout.left, rows * high + 5 * dpr);
    c.textAlign = 'right';
    c.fillText(heat ? 'coldest' : String(columns - 1), canvas.width, rows * high + 5 * dpr);
  }

  canvas.addEventListener('mousemove', function (event) {
    const box = canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * canvas.width / box.width;
    const y = (event.clientY - box.top) * canvas.height / box.height;
    const row = Math.floor(y / layout.high), e = Math.floor((x - layout.left) / layout.cell);
    if (row < 0 || row >= rows || e < 0 || e >= columns) { tip.style.display = 'none'; return; }
    const at = shown[row][e];
    const ratio = ratioOf(at.level);
    tip.textContent = 'layer ' + data.layers[row] + ', expert ' + at.id + ': ' +
        (at.level === 0 ? 'never chosen' : ratio.toPrecision(2) + ' times an even share, ' +
         (100 * ratio / columns).toPrecision(2) + '% of the layer');
    tip.style.display = 'block';
    tip.style.left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = event.clientY + 14 + 'px';
  });
  canvas.addEventListener('mouseleave', function () { tip.style.display = 'none'; });
  viewChoice.addEventListener('change', draw);
  orderChoice.addEventListener('change', draw);
  window.addEventListener('resize', draw);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);

  const scale = document.getElementById('scale');
  const names = {8: '1/8 of an even share', 16: '1/4', 24: '1/2', 32: '1', 40: '2', 48: '4',
                 56: '8 times'};
  for (const level of [8, 16, 24, 32, 40, 48, 56]) {
    const box = document.createElement('i');
    box.style.background = colourOf(level);
    scale.append(box, names[level]);
  }
  scale.append(' (blank: never chosen)');
  draw();
})();
)js";

}  // namespace hearth::cli
