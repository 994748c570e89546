// Draws deploy/grafana/chubby.json with the components that Grafana draws it with, out of what a Prometheus has recorded.
// When all is drawn, window.drawn says what there was: for each query, how many series with a number in them.
import React from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime } from '@grafana/data';
import { GlobalStyles, PanelChrome, ThemeContext } from '@grafana/ui';
import { initPluginTranslations } from '@grafana/i18n';
import './style.css';
import { annotations, fill, query, range, run, stepFor } from './prometheus.js';
import { kinds } from './panels.jsx';

const theme = createTheme({ colors: { mode: 'dark' } });
const timeRange = { from: dateTime(range.from), to: dateTime(range.to), raw: { from: dateTime(range.from), to: dateTime(range.to) } };

// The grid of a dashboard: 24 columns, and rows of 30 pixels, with 8 between.
const width = 1600, gap = 8, columns = 24, line = 30;
const column = (width - gap * (columns - 1)) / columns;
const place = ({ x, y, w, h }, top) => ({
  position: 'absolute', left: x * (column + gap), top: (y - top) * (line + gap), width: w * (column + gap) - gap, height: h * (line + gap) - gap,
});

function Panel({ panel, top, frames, marks }) {
  const at = place(panel.gridPos, top);
  const Kind = kinds[panel.type];
  return <div style={at} data-panel={panel.id}>
    <PanelChrome width={at.width} height={at.height} title={panel.title} description={panel.description} padding="md">
      {(w, h) => frames.length || panel.type === 'stat'
        ? <Kind panel={panel} frames={frames} marks={marks} theme={theme} timeRange={timeRange} width={w} height={h} />
        : <div className="empty">No data</div>}
    </PanelChrome>
  </div>;
}

function Dashboard({ rows, marks, frames }) {
  return <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    {rows.map(({ row, panels }) => {
      const top = row.gridPos.y;
      const bottom = Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h));
      return <section key={row.id} id={'row-' + row.id} style={{ width, height: (bottom - top) * (line + gap) }}>
        <h2>{row.title}</h2>
        {panels.map((p) => <Panel key={p.id} panel={p} top={top} frames={frames.get(p.id)} marks={marks} />)}
      </section>;
    })}
  </ThemeContext.Provider>;
}

async function draw() {
  await initPluginTranslations('grafana', []);
  // The font first: the widths of axes are measured with it.
  const root = createRoot(document.getElementById('dashboard'));
  flushSync(() => root.render(<ThemeContext.Provider value={theme}><GlobalStyles /></ThemeContext.Provider>));
  await Promise.all(['400 12px Inter', '500 12px Inter'].map((font) => document.fonts.load(font)));
  const dashboard = await (await fetch('dashboard.json')).json();
  const rows = [];
  for (const p of dashboard.panels) {
    if (p.type === 'row') {
      rows.push({ row: p, panels: [] });
    } else {
      rows.at(-1).panels.push(p);
    }
  }
  const frames = new Map();
  const report = [];
  for (const p of dashboard.panels.filter((p) => p.type !== 'row')) {
    const step = stepFor(timeRange, Math.floor(place(p.gridPos, 0).width));
    const all = [];
    for (const target of p.targets) {
      const series = await query(target, step);
      const numbers = series.map((f) => f.fields[1].values.filter(Number.isFinite));
      report.push({ panel: p.title, query: fill(target.expr, step), series: numbers.filter((n) => n.length).length, most: Math.max(...numbers.flat(), 0) });
      all.push(...series);
    }
    frames.set(p.id, all);
  }
  const marks = await annotations(dashboard.annotations.list);
  root.render(<Dashboard rows={rows} marks={marks} frames={frames} />);
  await new Promise((done) => setTimeout(done, 3000)); // uPlot draws after React
  return { queries: report, marks, rows: rows.map(({ row }) => ({ id: row.id, title: row.title })), kinds: [...new Set(dashboard.panels.map((p) => p.type))].filter((k) => k !== 'row' && !kinds[k]) };
}

draw().then((drawn) => { window.drawn = drawn; }, (error) => { window.drawn = { error: String(error.stack || error) }; });
