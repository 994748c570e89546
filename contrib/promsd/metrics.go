package promsd

import "github.com/prometheus/client_golang/prometheus"

// metric is one metric of each Job.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(state) (value float64, known bool)
}

// metrics are all of them.
func metrics() []metric {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("chubby_promsd_"+name, help, []string{"job"}, nil)
	}
	always := func(of func(state) float64) func(state) (float64, bool) {
		return func(s state) (float64, bool) { return of(s), true }
	}
	ofListing := func(of func(listing) int) func(state) (float64, bool) {
		return func(s state) (float64, bool) {
			if s.newest == nil {
				return 0, false
			}
			return float64(of(*s.newest)), true
		}
	}
	return []metric{
		{
			describe("fresh", "1 while the list is what the cell has, 0 while the cell cannot be reached or refuses it, and the list stays as it was."),
			prometheus.GaugeValue, always(func(s state) float64 {
				if s.fresh {
					return 1
				}
				return 0
			}),
		},
		{
			describe("targets", "Targets of the list. Missing before the cell has answered."),
			prometheus.GaugeValue, ofListing(func(l listing) int { return l.targets }),
		},
		{
			describe("skipped", "Members that are not listed, as they have no usable address. Missing before the cell has answered."),
			prometheus.GaugeValue, ofListing(func(l listing) int { return l.skipped }),
		},
		{
			describe("file_writes_total", "Times that the file was written."),
			prometheus.CounterValue, always(func(s state) float64 { return float64(s.writes) }),
		},
		{
			describe("file_write_failures_total", "Attempts to write the file that failed."),
			prometheus.CounterValue, always(func(s state) float64 { return float64(s.failures) }),
		},
	}
}

// Describe is that of a prometheus.Collector.
func (d *Discovery) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		descs <- m.desc
	}
}

// Collect is that of a prometheus.Collector. The metrics begin with chubby_promsd_ and have a label job.
func (d *Discovery) Collect(values chan<- prometheus.Metric) {
	all := metrics()
	for _, l := range d.lists {
		now := l.state()
		for _, m := range all {
			if value, known := m.value(now); known {
				values <- prometheus.MustNewConstMetric(m.desc, m.kind, value, l.job.Name)
			}
		}
	}
}
