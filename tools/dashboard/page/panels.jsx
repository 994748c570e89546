// One panel of each kind that the dashboard has.
import React, { useState } from 'react';
import { dateTimeFormat, getFieldDisplayValues } from '@grafana/data';
import { BigValue, TimeSeries, VizRepeater, measureText } from '@grafana/ui';
import { prepare } from './frames.js';

export const kinds = { stat: Stat, timeseries: Lines, 'state-timeline': States };

function Stat({ panel, frames, theme, width, height }) {
  const o = panel.options;
  const values = () => getFieldDisplayValues({
    data: prepare(panel, frames, theme), fieldConfig: panel.fieldConfig, reduceOptions: o.reduceOptions,
    replaceVariables: (text) => text, theme, timeZone: 'utc', sparkline: false,
  });
  return <VizRepeater
    width={width} height={height} orientation={o.orientation} itemSpacing={3} autoGrid getValues={values} source={frames} renderCounter={0}
    renderValue={({ value, width, height, count }) => <BigValue
      value={value.display} count={count} width={width} height={height} theme={theme}
      colorMode={o.colorMode} graphMode={o.graphMode} justifyMode={o.justifyMode} textMode={o.textMode} wideLayout={o.wideLayout} />} />;
}

function Lines({ panel, frames, marks, theme, timeRange, width, height }) {
  const [prepared] = useState(() => prepare(panel, frames, theme));
  return <TimeSeries frames={prepared} width={width} height={height} timeRange={timeRange} timeZone="utc" legend={panel.options.legend}>
    {(builder) => {
      mark(builder, marks, theme);
      return null;
    }}
  </TimeSeries>;
}

const marked = new WeakSet();

// mark draws annotations as Grafana does: a dashed line, and between two a shade.
function mark(builder, marks, theme) {
  if (marked.has(builder)) {
    return;
  }
  marked.add(builder);
  builder.addHook('draw', (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const m of marks) {
      const color = theme.visualization.getColorByName(m.color);
      const [from, to] = [m.time, m.end].map((t) => u.valToPos(t, 'x', true));
      ctx.fillStyle = ctx.strokeStyle = color;
      ctx.globalAlpha = 0.1;
      ctx.fillRect(from, bbox.top, to - from, bbox.height);
      ctx.globalAlpha = 1;
      ctx.lineWidth = 2;
      ctx.setLineDash([5, 5]);
      for (const x of new Set([from, to])) {
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
    }
    ctx.restore();
  });
}

// States is ours: Grafana's package has no state timeline.
function States({ panel, frames, theme, timeRange, width, height }) {
  const prepared = prepare(panel, frames, theme);
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const names = prepared.map((f) => f.fields[1].state.displayName);
  const left = 16 + Math.max(0, ...names.map((n) => measureText(n, 12).width));
  const bottom = 22;
  const legend = panel.options.legend.showLegend ? 22 : 0;
  const plot = { width: width - left, height: height - bottom - legend };
  const row = plot.height / Math.max(1, prepared.length);
  const x = (t) => left + ((Math.min(Math.max(t, from), to) - from) / (to - from)) * plot.width;
  const text = { fill: theme.colors.text.primary, fontSize: 12, fontFamily: theme.typography.fontFamily };
  const seen = new Map();
  const bars = prepared.flatMap((frame, i) => {
    const [time, value] = frame.fields;
    const runs = [];
    time.values.forEach((t, j) => {
      const end = t + time.config.interval;
      if (runs.length && runs.at(-1).value === value.values[j]) {
        runs.at(-1).end = end;
      } else {
        runs.push({ begin: t, end, value: value.values[j] });
      }
    });
    return runs.filter((r) => r.value !== null).map((r, j) => {
      const shown = value.display(r.value);
      seen.set(shown.text, shown.color);
      return <rect key={i + '/' + j} x={x(r.begin)} y={row * (i + 0.1)} width={Math.max(1, x(r.end) - x(r.begin))} height={row * 0.8} fill={shown.color} fillOpacity={panel.fieldConfig.defaults.custom.fillOpacity / 100} />;
    });
  });
  const ticks = [];
  for (let t = Math.ceil(from / 30000) * 30000; t <= to; t += 30000) {
    ticks.push(t);
  }
  return <svg width={width} height={height}>
    {ticks.map((t) => <g key={t}>
      <line x1={x(t)} x2={x(t)} y1={0} y2={plot.height} stroke={theme.colors.border.weak} />
      <text x={x(t)} y={plot.height + 16} textAnchor="middle" {...text}>{dateTimeFormat(t, { format: 'HH:mm:ss', timeZone: 'utc' })}</text>
    </g>)}
    {names.map((name, i) => <text key={i} x={left - 8} y={row * (i + 0.5) + 4} textAnchor="end" {...text}>{name}</text>)}
    {bars}
    {legend > 0 && [...seen].map(([state, color], i) => <g key={state} transform={`translate(${8 + i * 110}, ${height - 8})`}>
      <rect width={14} height={4} y={-6} rx={1} fill={color} />
      <text x={20} {...text}>{state}</text>
    </g>)}
  </svg>;
}
