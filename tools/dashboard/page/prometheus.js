// What Grafana's data source for Prometheus does with a query of a dashboard: the step, the variables, the names of series.
import { createDataFrame, FieldType, rangeUtil } from '@grafana/data';

// run is what the recording says of itself, in milliseconds: {prometheus, from, to, scrape, cell}.
export const run = await (await fetch('run.json')).json();
export const range = { from: run.from, to: run.to };

async function ask(path, parameters) {
  const reply = await fetch(run.prometheus + '/api/v1/' + path + '?' + new URLSearchParams(parameters));
  const answer = await reply.json();
  if (answer.status !== 'success') {
    throw new Error(answer.error + ', of ' + parameters.query);
  }
  return answer.data.result;
}

// stepFor is the interval of a panel, in ms: one point for each of its pixels at most, and none between two scrapes.
export function stepFor(timeRange, width) {
  return rangeUtil.calculateInterval(timeRange, width, run.scrape + 'ms').intervalMs;
}

// fill puts values in the place of the dashboard's variables: one cell, and all replicas.
export function fill(text, step = run.scrape) {
  const values = { cell: run.cell, replica: '.*', __rate_interval: Math.max(step + run.scrape, 4 * run.scrape) + 'ms', __interval: step + 'ms', datasource: 'Prometheus' };
  return text.replace(/\$\{?(\w+)\}?/g, (whole, name) => values[name] ?? whole);
}

function nameOf(target, labels) {
  if (!target.legendFormat || target.legendFormat === '__auto') {
    return JSON.stringify(labels);
  }
  return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

// query asks for one query of a panel, and returns a frame for each series. Steps without a value, or with one that is no number, are null:
// there, lines have a gap.
export async function query(target, step) {
  const text = fill(target.expr, step);
  const [from, to] = [run.from, run.to].map((ms) => Math.floor(ms / step) * step); // as Grafana does, so that two loads of a panel show the same
  let series, times;
  if (target.instant) {
    times = [run.to];
    series = (await ask('query', { query: text, time: run.to / 1000 })).map((s) => ({ ...s, values: [s.value] }));
  } else {
    times = Array.from({ length: (to - from) / step + 1 }, (_, i) => from + i * step);
    series = await ask('query_range', { query: text, start: from / 1000, end: to / 1000, step: step / 1000 });
  }
  return series.map(({ metric, values }) => {
    const at = new Map(values.map(([t, v]) => [Math.round(t * 1000), Number(v)]));
    return createDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, config: { interval: step }, values: times },
        {
          name: 'Value', type: FieldType.number, labels: metric, config: { displayNameFromDS: nameOf(target, metric) },
          values: times.map((t) => (Number.isFinite(at.get(t)) ? at.get(t) : null)),
        },
      ],
    });
  });
}

// annotations asks for the marks of the dashboard. Marks of one series that are a step apart are one, with an end.
export async function annotations(list) {
  const marks = [];
  for (const a of list.filter((a) => a.enable && a.expr)) {
    const step = rangeUtil.intervalToMs(a.step || '60s');
    for (const frame of await query({ expr: a.expr, legendFormat: a.titleFormat, refId: 'annotation' }, step)) {
      const [times, values] = [frame.fields[0].values, frame.fields[1].values];
      let last;
      times.forEach((time, i) => {
        if (!values[i]) {
          return;
        }
        if (last && time - last.end <= step) {
          last.end = time;
          return;
        }
        last = { time, end: time, color: a.iconColor, title: frame.fields[1].config.displayNameFromDS };
        marks.push(last);
      });
    }
  }
  return marks;
}
