// A panel's frames, as Grafana has them when it draws: each field with its configuration, its colour and its formatter.
import { applyFieldOverrides, fieldMatchers, getFieldDisplayName } from '@grafana/data';

// What Grafana adds to a panel that does not say it.
const custom = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', spanNulls: false,
  showPoints: 'auto', pointSize: 5, axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text', axisBorderShow: false,
  barAlignment: 0, stacking: { mode: 'none', group: 'A' }, thresholdsStyle: { mode: 'off' },
  hideFrom: { viz: false, legend: false, tooltip: false }, scaleDistribution: { type: 'linear' },
};

export function prepare(panel, frames, theme) {
  const { defaults, overrides } = panel.fieldConfig;
  for (const frame of frames) {
    const value = frame.fields[1];
    value.config = { ...structuredClone(defaults), ...value.config, custom: { ...structuredClone(custom), ...structuredClone(defaults.custom) } };
    for (const rule of overrides) {
      if (!fieldMatchers.get(rule.matcher.id).get(rule.matcher.options)(value, frame, frames)) {
        continue;
      }
      for (const { id, value: is } of rule.properties) {
        if (id.startsWith('custom.')) {
          value.config.custom[id.slice('custom.'.length)] = is;
        } else {
          value.config[id] = is;
        }
      }
    }
  }
  const prepared = applyFieldOverrides({ data: frames, fieldConfig: { defaults: {}, overrides: [] }, replaceVariables: (text) => text, theme, timeZone: 'utc' });
  for (const frame of prepared) {
    for (const field of frame.fields) {
      getFieldDisplayName(field, frame, prepared); // keeps it in the field, where the legend looks
    }
  }
  return prepared;
}
