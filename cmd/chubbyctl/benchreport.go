package main

import (
	"fmt"
	"math"
	"time"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type benchFields struct {
	Workload    string          `json:"workload"`
	Cell        string          `json:"cell"`
	Clients     int             `json:"clients"`
	DurationS   float64         `json:"duration_s"`
	Interrupted bool            `json:"interrupted"`
	Operations  []latencyFields `json:"operations"`
}

type latencyFields struct {
	Operation string  `json:"operation"`
	Count     int64   `json:"count"`
	RatePerS  float64 `json:"rate_per_s"`
	MinMS     float64 `json:"min_ms"`
	MeanMS    float64 `json:"mean_ms"`
	P50MS     float64 `json:"p50_ms"`
	P90MS     float64 `json:"p90_ms"`
	P99MS     float64 `json:"p99_ms"`
	P999MS    float64 `json:"p999_ms"`
	MaxMS     float64 `json:"max_ms"`
}

func (b *bench) report(f figures) error {
	if b.json() {
		fields := benchFields{
			Workload:    b.workload.name,
			Cell:        b.base.Cell(),
			Clients:     b.clients,
			DurationS:   term.Seconds(f.elapsed),
			Interrupted: f.interrupted,
			Operations:  []latencyFields{},
		}
		for _, o := range f.operations {
			fields.Operations = append(fields.Operations, latencyFields{
				o.name, o.count, math.Round(10*o.rate(f.elapsed)) / 10,
				milliseconds(o.fastest), milliseconds(o.mean), milliseconds(o.p50), milliseconds(o.p90),
				milliseconds(o.p99), milliseconds(o.p999), milliseconds(o.slowest),
			})
		}
		return b.output.Print(b.out, fields)
	}
	t := b.output.NewTable(b.out, "OPERATION", "COUNT", "RATE/S", "MEAN", "P50", "P90", "P99", "P99.9", "MAX")
	for _, o := range f.operations {
		t.Add(o.name, o.count, roughRate(o.rate(f.elapsed)), brief(o.mean), brief(o.p50), brief(o.p90), brief(o.p99), brief(o.p999), brief(o.slowest))
	}
	return t.Flush()
}

func (o operationFigures) rate(elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(o.count) / elapsed.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()/100) / 1e4 }

func brief(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

func roughRate(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}
