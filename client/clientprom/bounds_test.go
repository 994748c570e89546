package clientprom_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client/clientprom"
	"github.com/prometheus/client_golang/prometheus"
)

// However many operations there are, the metrics stay as many, and tell of each call.
func TestLabelsAreBounded(t *testing.T) {
	m := clientprom.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	const calls = 5000
	for i := range calls {
		m.Meter().Called(fmt.Sprint("open ", i), api.OK, 0)
	}
	families := ok(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() != "chubbyclient_call_seconds" {
			continue
		}
		var counted uint64
		for _, one := range f.GetMetric() {
			counted += one.GetHistogram().GetSampleCount()
		}
		if n := len(f.GetMetric()); n > 520 || counted != calls {
			t.Errorf("%d histograms for %d calls, of which they have %d", n, calls, counted)
		}
		return
	}
	t.Error("no calls")
}

// What is measured costs no memory.
func TestMeterMakesNothing(t *testing.T) {
	meter := clientprom.New().Meter()
	measure := func() {
		meter.Called("read", api.OK, time.Millisecond)
		meter.Acquired(api.Exclusive, time.Millisecond)
		meter.Released(api.Shared, time.Millisecond)
		meter.Connected(true)
	}
	if n := testing.AllocsPerRun(100, measure); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A code that this version does not know, as a newer cell may answer with, is counted with all others of that kind.
func TestUnknownCodesAreBounded(t *testing.T) {
	m := clientprom.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	const calls = 5000
	for i := range calls {
		m.Meter().Called("open", api.Code(1000+i), 0)
	}
	families := ok(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() == "chubbyclient_call_seconds" {
			if n := len(f.GetMetric()); n != 1 || f.GetMetric()[0].GetHistogram().GetSampleCount() != calls {
				t.Errorf("%d histograms for one operation and codes that nobody knows", n)
			}
			return
		}
	}
	t.Error("no calls")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// ok returns what a call returns, and ends the test on its error.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
