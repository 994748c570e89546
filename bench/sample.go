package main

import (
	"slices"
	"time"

	"github.com/chubbylock/chubby/internal/load"
)

// sample is one row measured once. What a row does not measure is zero.
type sample struct {
	Rate float64       `json:"rate"` // operations a second
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	Max  time.Duration `json:"max_ns"`
	Ops  int64         `json:"ops"`

	// Start numbers the starts of a system that was started more than once, from 0.
	Start int `json:"start,omitempty"`

	// Wait is the time until a lock was held, within an operation.
	WaitMean time.Duration `json:"wait_mean_ns,omitempty"`
	WaitP50  time.Duration `json:"wait_p50_ns,omitempty"`
	WaitP99  time.Duration `json:"wait_p99_ns,omitempty"`
	WaitMax  time.Duration `json:"wait_max_ns,omitempty"`
	// The operations of the client that had the fewest, and of the one that had the most, where an
	// equal share is 1.
	Fewest float64 `json:"fewest,omitempty"`
	Most   float64 `json:"most,omitempty"`

	// Processor time an operation, of all servers together and of this program.
	ServerCPU time.Duration `json:"server_cpu_ns,omitempty"`
	ClientCPU time.Duration `json:"client_cpu_ns,omitempty"`

	// Bytes an operation on the loopback interface, between servers and to clients.
	Bytes int64 `json:"bytes,omitempty"`

	// Cores are the processors that the servers kept busy, Memory is in bytes; both are more than
	// before the row.
	Cores  float64 `json:"cores,omitempty"`
	Memory int64   `json:"memory,omitempty"`

	// Times are those of a row that measures a few single ones: P50 is their median, Max the longest.
	Times []time.Duration `json:"times_ns,omitempty"`
}

// used is the processor time of an operation.
func (s sample) used() time.Duration { return s.ServerCPU + s.ClientCPU }

// summarize returns the figures of a load.
func summarize(r load.Result) sample {
	count := r.Count()
	s := sample{Rate: float64(count) / r.Took.Seconds(), Ops: count}
	s.P50, s.P99, s.Max = load.Time(r.Whole.ValueAtQuantile(50)), load.Time(r.Whole.ValueAtQuantile(99)), load.Time(r.Whole.Max())
	if w := r.First; w.TotalCount() > 0 {
		s.WaitMean, s.WaitP50 = load.Time(w.Mean()), load.Time(w.ValueAtQuantile(50))
		s.WaitP99, s.WaitMax = load.Time(w.ValueAtQuantile(99)), load.Time(w.Max())
	}
	if count > 0 {
		share := float64(count) / float64(len(r.Counts))
		s.Fewest, s.Most = float64(slices.Min(r.Counts))/share, float64(slices.Max(r.Counts))/share
	}
	return s
}

// sampleOf returns the sample of a row that measures single times.
func sampleOf(times []time.Duration) sample {
	if len(times) == 0 {
		return sample{}
	}
	return sample{P50: median(times), Max: slices.Max(times), Ops: int64(len(times)), Times: times}
}

// medianOf returns the median over the rounds of each figure, and of single times the median over all
// of them.
func medianOf(rounds []sample) sample {
	var times []time.Duration
	for _, s := range rounds {
		times = append(times, s.Times...)
	}
	if len(times) > 0 {
		return sampleOf(times)
	}
	return sample{
		Rate:      middle(rounds, func(s sample) float64 { return s.Rate }),
		P50:       middle(rounds, func(s sample) time.Duration { return s.P50 }),
		P99:       middle(rounds, func(s sample) time.Duration { return s.P99 }),
		Max:       middle(rounds, func(s sample) time.Duration { return s.Max }),
		Ops:       middle(rounds, func(s sample) int64 { return s.Ops }),
		WaitMean:  middle(rounds, func(s sample) time.Duration { return s.WaitMean }),
		WaitP50:   middle(rounds, func(s sample) time.Duration { return s.WaitP50 }),
		WaitP99:   middle(rounds, func(s sample) time.Duration { return s.WaitP99 }),
		WaitMax:   middle(rounds, func(s sample) time.Duration { return s.WaitMax }),
		Fewest:    middle(rounds, func(s sample) float64 { return s.Fewest }),
		Most:      middle(rounds, func(s sample) float64 { return s.Most }),
		ServerCPU: middle(rounds, func(s sample) time.Duration { return s.ServerCPU }),
		ClientCPU: middle(rounds, func(s sample) time.Duration { return s.ClientCPU }),
		Bytes:     middle(rounds, func(s sample) int64 { return s.Bytes }),
		Cores:     middle(rounds, func(s sample) float64 { return s.Cores }),
		Memory:    middle(rounds, func(s sample) int64 { return s.Memory }),
	}
}

// middle returns the median of one figure.
func middle[T int64 | float64 | time.Duration](list []sample, of func(sample) T) T {
	values := make([]T, len(list))
	for i, s := range list {
		values[i] = of(s)
	}
	return median(values)
}

// median returns the middle of an odd number of values, and the mean of the two in the middle of an
// even one.
func median[T int64 | float64 | time.Duration](list []T) T {
	values := slices.Sorted(slices.Values(list))
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
