'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  const color = (i) => getComputedStyle(root).getPropertyValue(typeof i === 'string' ? i : '--c' + (i % 8)).trim();
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const $ = (id) => document.getElementById(id);

  // Numbers for people.
  const short = (v, digits = 3) => String(Number(v.toPrecision(digits)));
  const scaled = (v, base, units) => {
    let i = 0;
    while (Math.abs(v) >= base * 0.9995 && i + 1 < units.length) v /= base, ++i;
    return short(v) + units[i];
  };
  const count = (v) => scaled(v, 1000, ['', 'k', 'M', 'G', 'T', 'P']);
  const bytes = (v) => scaled(v, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB']);
  const percent = (v) => short(v * 100) + ' %';
  const seconds = (s) => s === 0 ? '0' : s < 1e-3 ? short(s * 1e6) + ' µs' : s < 1 ? short(s * 1e3) + ' ms' : s < 100 ? short(s) + ' s'
    : s < 3600 ? Math.floor(s / 60) + ' min ' + Math.round(s % 60) + ' s' : Math.floor(s / 3600) + ' h ' + Math.round(s % 3600 / 60) + ' min';
  const plain = (v) => Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(1) : short(v, 4);

  document.title = data.name + ' – Ballast run';
  $('name').textContent = data.name;
  for (const note of data.notes) $('notes').append(make('li', {}, note));

  // Final figures.
  const f = data.final;
  const figure = (label, value) => {
    if (value !== undefined) $('figures').append(make('div', { class: 'figure' }, make('b', {}, value), make('span', {}, label)));
  };
  const shown = (v, format) => v === undefined ? undefined : v === null ? 'not finite' : format(v);
  figure('last train loss', shown(f.loss, (v) => v.toFixed(4)));
  figure('best eval loss' + (f.best_eval_step !== undefined ? ' (step ' + f.best_eval_step + ')' : ''), shown(f.best_eval_loss, (v) => v.toFixed(4)));
  figure('best perplexity', shown(f.perplexity, (v) => short(v, 4)));
  figure('steps', shown(f.steps, (v) => v.toLocaleString('en')));
  figure('tokens', shown(f.tokens, count));
  figure('tokens/s (median)', shown(f.tokens_per_s, count));
  figure('MFU (median)', shown(f.mfu, percent));
  figure('peak memory of a rank', shown(f.memory_bytes, bytes));
  figure('training time', shown(f.elapsed_s, seconds));
  if (f.skipped > 0) figure('steps skipped', String(f.skipped));

  // Charts, redrawn when the theme changes.
  const charts = [];
  const definitions = [];
  const card = (title, note, wide) => {
    const canvas = make('canvas', { role: 'img', 'aria-label': title });
    const element = make('div', { class: wide ? 'card wide' : 'card' }, make('h2', {}, title), make('p', {}, note), make('div', { class: 'plot' }, canvas));
    $('charts').append(element);
    return canvas;
  };
  const points = (values, steps) => values.map((y, i) => ({ x: steps[i], y }));
  const line = (label, values, steps, index, extra = {}) => ({
    label, data: points(values, steps), stroke: index, borderWidth: 1.6, pointRadius: steps.length < 3 ? 3 : 0, pointHitRadius: 6, tension: 0, spanGaps: false, ...extra });
  // A centred mean: no lag behind the raw curve.
  const smooth = (values) => {
    const reach = Math.max(2, Math.round(values.length / 60));
    return values.map((_, i) => {
      const near = values.slice(Math.max(0, i - reach), i + reach + 1).filter((v) => v !== null);
      return near.length ? near.reduce((a, b) => a + b, 0) / near.length : null;
    });
  };
  // Ticks of bytes fall on powers of two.
  const step = (datasets, format, stacked) => {
    if (format !== bytes) return undefined;
    const tops = datasets.map((d) => Math.max(1, ...d.data.map((p) => p.y ?? 0)));
    const top = stacked ? tops.reduce((a, b) => a + b, 0) : Math.max(...tops);
    return Math.pow(2, Math.ceil(Math.log2(top / 5)));
  };
  const chart = (title, note, datasets, format, { wide = false, zero = false, log = false, stacked = false } = {}) => {
    const canvas = card(title, note, wide);
    definitions.push(() => {
      const grid = color('--line'), soft = color('--soft');
      return new Chart(canvas, {
        type: 'line',
        data: { datasets: datasets.map((d) => ({ ...d, borderColor: color(d.stroke) + (d.faint ? '55' : ''), backgroundColor: color(d.stroke) + (d.fill ? '33' : '') })) },
        options: {
          responsive: true, maintainAspectRatio: false, animation: false, normalized: true,
          interaction: { mode: 'nearest', axis: 'x', intersect: false },
          scales: {
            x: { type: 'linear', grid: { color: grid }, ticks: { color: soft, maxRotation: 0, maxTicksLimit: 8, callback: (v) => Number.isInteger(v) ? count(v) : '' } },
            y: { type: log ? 'logarithmic' : 'linear', beginAtZero: zero, stacked, grid: { color: grid }, ticks: { color: soft, maxTicksLimit: 7, stepSize: step(datasets, format, stacked), callback: (v) => format(v) } } },
          plugins: {
            legend: { display: datasets.length > 1, position: 'bottom', labels: { color: soft, boxWidth: 14, boxHeight: 2, padding: 12 } },
            tooltip: { callbacks: { title: (items) => items.length ? 'step ' + items[0].parsed.x : '', label: (item) => ' ' + item.dataset.label + ': ' + format(item.parsed.y) } } } } });
    });
  };

  const s = data.steps;
  if (s.step.length === 0) {
    $('charts').append(make('div', { class: 'empty' }, 'No training step has been recorded yet.'));
  } else {
    const each = s.per_point > 1 ? 'Each point is the mean of ' + s.per_point + ' steps.' : 'One point per step.';
    const loss = [line('train', s.loss, s.step, 0, { faint: s.step.length > 20 })];
    if (s.step.length > 20) loss.push(line('train, smoothed', smooth(s.loss), s.step, 0, { borderWidth: 2.4 }));
    if (data.eval.length) loss.push({ label: 'eval', data: data.eval.map(([x, y]) => ({ x, y })), stroke: 1, borderWidth: 2, pointRadius: data.eval.length > 60 ? 0 : 3.5, spanGaps: true });
    chart('Loss', 'Nats per trained token over optimizer steps. ' + each, loss, plain, { wide: true });
    chart('Learning rate', 'As used in the step.', [line('lr', s.lr, s.step, 2)], plain, { zero: true });
    chart('Gradient norm', 'Global, before clipping.', [line('norm', s.grad_norm, s.step, 3)], plain, { log: s.grad_norm.every((v) => v === null || v > 0) && Math.max(...s.grad_norm) > 50 * Math.min(...s.grad_norm.filter((v) => v !== null)) });
    chart('Throughput', 'Real tokens per second over all ranks.', [line('tokens/s', s.tokens_per_s, s.step, 0)], count, { zero: true });
    chart('Where the time goes', 'Share of the step spent waiting, and model FLOPs against the measured peak.',
      [line('MFU', s.mfu, s.step, 2), line('communication', s.communication_share, s.step, 1), line('data wait', s.data_wait_share, s.step, 3), line('padding', s.padding_share, s.step, 5)], percent, { zero: true });
    chart('Memory', 'Peak of the rank that used most.', [line('peak', s.memory_bytes, s.step, 4)], bytes, { zero: true });
    const levels = Object.keys(s.bytes);
    if (levels.length && levels.some((l) => s.bytes_total[l] > 0))
      chart('Bytes per level', 'Payload sent in a step over the links of each level, all ranks. Total: ' + levels.map((l) => l + ' ' + bytes(s.bytes_total[l])).join(', ') + '.',
        levels.map((l, i) => line(l, s.bytes[l], s.step, i, { fill: true })), bytes, { zero: true, stacked: true });
    chart('Step time', 'Seconds of wall clock per optimizer step.', [line('time', s.time_s, s.step, 7)], seconds, { zero: true });
    chart('Imbalance', 'Predicted cost of the most loaded rank, over the mean; 1 is even.', [line('imbalance', s.imbalance, s.step, 6)], plain);
  }

  // The timeline of the last traced steps.
  const t = data.timeline;
  const svg = (tag, attributes, text) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const table = (head, rows, kind = '') => {
    const body = make('table', { class: kind });
    if (head.length) body.append(make('tr', {}, ...head.map((h) => make('th', {}, h))));
    for (const row of rows) body.append(make('tr', {}, ...row.map((cell) => make('td', {}, cell))));
    return make('div', { class: 'wrap' }, body);
  };
  const drawTimeline = () => {
    const kernels = t.kernels.map((k) => k.what);
    // Eight colours for the kernels that took longest, darker (on dark pages lighter) ones for the others.
    const stroke = (what) => {
      const i = Math.max(0, kernels.indexOf(what)), plain = 'var(--c' + (i % 8) + ')';
      return i < 8 ? plain : 'color-mix(in srgb, ' + plain + ' 55%, var(--ink))';
    };
    const ranks = [...new Set(t.use.map((u) => u.rank))].sort((a, b) => a - b);
    const drawn = ranks.slice(0, 8);
    const section = $('timeline');
    section.append(make('h3', {}, 'Timeline of ' + (t.first_step === t.last_step ? 'step ' + t.last_step : 'steps ' + t.first_step + '–' + t.last_step)));
    section.append(make('p', { class: 'hint' }, 'Every single operation is in trace.json beside this page: open it in ui.perfetto.dev or chrome://tracing.'));
    if (t.dropped_records > 0) $('notes').append(make('li', {}, t.dropped_records + ' operations did not fit into the trace and are missing from the timeline.'));
    if (!t.use.length) { section.append(make('div', { class: 'empty' }, 'The trace holds no operation.')); return; }

    // Occupancy: a bar per rank and lane.
    const uses = t.use.filter((u) => u.operations > 0 && drawn.includes(u.rank));
    const left = 170, width = 1000, row = 22;
    const bars = svg('svg', { viewBox: '0 0 ' + (left + width + 70) + ' ' + (uses.length * row + 4) });
    uses.forEach((u, i) => {
      const y = i * row;
      bars.append(svg('text', { x: left - 10, y: y + 15, 'text-anchor': 'end' }, 'rank ' + u.rank + ' · ' + t.lanes[u.lane]));
      bars.append(svg('rect', { x: left, y: y + 4, width, height: 14, rx: 3, fill: 'var(--line)' }));
      bars.append(svg('rect', { x: left, y: y + 4, width: Math.max(1, width * u.share), height: 14, rx: 3, fill: 'var(--c' + (u.lane % 8) + ')' }));
      bars.append(svg('text', { x: left + width + 8, y: y + 15, class: 'soft' }, percent(u.share)));
    });
    const hidden = ranks.length > drawn.length ? ' Ranks ' + drawn[0] + '–' + drawn[drawn.length - 1] + ' of ' + ranks.length + ' are drawn.' : '';
    section.append(make('div', { class: 'card' }, make('h2', {}, 'Lane occupancy'),
      make('p', {}, 'Share of ' + seconds(t.window_s) + ' in which a lane was busy.' + hidden), make('div', { class: 'tracks' }, bars)));

    // The last traced step, span by span.
    const tracks = t.picture.tracks.filter((k) => drawn.includes(k.rank));
    if (tracks.length && t.picture.window_s > 0) {
      const picture = svg('svg', { viewBox: '0 0 ' + (left + width + 70) + ' ' + (tracks.length * row + 26) });
      const scale = width / t.picture.window_s;
      for (let i = 0; i <= 5; ++i) {
        const x = left + width * i / 5;
        picture.append(svg('line', { x1: x, x2: x, y1: 0, y2: tracks.length * row + 4, stroke: 'var(--line)' }));
        picture.append(svg('text', { x, y: tracks.length * row + 20, 'text-anchor': 'middle', class: 'soft' }, seconds(t.picture.window_s * i / 5)));
      }
      const seen = new Set();
      tracks.forEach((track, i) => {
        picture.append(svg('text', { x: left - 10, y: i * row + 16, 'text-anchor': 'end' }, 'rank ' + track.rank + ' · ' + t.lanes[track.lane]));
        for (const [start, end, what] of track.spans) {
          seen.add(what);
          const bar = svg('rect', { x: (left + start * scale).toFixed(1), y: i * row + 4, width: Math.max(0.7, (end - start) * scale).toFixed(1), height: 15, fill: stroke(what) });
          bar.append(svg('title', {}, what + ', ' + seconds(end - start) + ' at ' + seconds(start)));
          picture.append(bar);
        }
      });
      const legend = make('div', { class: 'legend' });
      for (const what of kernels.filter((k) => seen.has(k))) {
        const entry = make('span', {}, make('i', {}), what);
        entry.firstChild.style.background = stroke(what);
        legend.append(entry);
      }
      section.append(make('div', { class: 'card', style: 'margin-top:16px' }, make('h2', {}, 'Step ' + t.picture.step),
        make('p', {}, 'Operations by lane; those nearer than a pixel are drawn as one, in the colour of the longest.'), make('div', { class: 'tracks' }, picture), legend));
    }
    section.append(make('div', { class: 'card', style: 'margin-top:16px' }, make('h2', {}, 'Operations'), make('p', {}, 'Sums over all ranks and traced steps.'),
      table(['operation', 'kind', 'count', 'time', 'mean', 'bytes', 'FLOP/s'], t.kernels.map((k) => [k.what, k.kind, k.operations.toLocaleString('en'), seconds(k.total_s),
        seconds(k.total_s / Math.max(1, k.operations)), k.bytes ? bytes(k.bytes) : '–', k.flops && k.total_s > 0 ? count(k.flops / k.total_s) : '–']))));
  };
  if (t) {
    try {
      drawTimeline();
    } catch (error) {
      $('notes').append(make('li', {}, 'timeline.json is not as this page expects: ' + error.message));
    }
  } else {
    $('timeline').append(make('div', { class: 'empty', style: 'margin-top:16px' }, 'Train with --trace FIRST:LAST to see here what each lane of each rank did in those steps.'));
  }

  // Configuration and environment.
  if (data.environment) {
    const text = (v) => typeof v === 'string' ? v : JSON.stringify(v);
    $('texts').append(make('h3', {}, 'Environment'), make('div', { class: 'card' }, table([], Object.entries(data.environment).map(([k, v]) => [k, text(v)]), 'plain')));
  }
  if (data.config) $('texts').append(make('h3', {}, 'Configuration'), make('div', { class: 'card' }, make('pre', {}, data.config)));

  const draw = () => {
    while (charts.length) charts.pop().destroy();
    for (const definition of definitions) charts.push(definition());
  };
  const theme = (dark) => {
    root.classList.toggle('dark', dark);
    root.style.colorScheme = dark ? 'dark' : 'light';
    $('theme').textContent = dark ? 'light' : 'dark';
    draw();
  };
  let chosen = null;
  const preference = window.matchMedia('(prefers-color-scheme: dark)');
  preference.addEventListener('change', (event) => { if (chosen === null) theme(event.matches); });
  $('theme').addEventListener('click', () => { chosen = !root.classList.contains('dark'); theme(chosen); });
  // Paper is white; charts are bitmaps that must be resized for it.
  let before = false;
  window.addEventListener('beforeprint', () => { before = root.classList.contains('dark'); theme(false); for (const c of charts) c.resize(); });
  window.addEventListener('afterprint', () => theme(before));
  theme(preference.matches);
})();
