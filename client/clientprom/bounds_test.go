package clientprom_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/clientprom"
	"github.com/prometheus/client_golang/prometheus"
)

// However many operations there are, and codes that this version does not know, as a newer cell may answer with, the metrics
// stay as many, and tell of each call.
func TestLabelsAreBounded(t *testing.T) {
	const calls = 5000
	for most, call := range map[int]func(m *client.Meter, i int){
		520: func(m *client.Meter, i int) { m.Called(fmt.Sprint("open ", i), api.OK, 0) },
		1:   func(m *client.Meter, i int) { m.Called("open", api.Code(1000+i), 0) },
	} {
		m, registry := clientprom.New(), prometheus.NewRegistry()
		registry.MustRegister(m)
		for i := range calls {
			call(m.Meter(), i)
		}
		var counted uint64
		for _, f := range ok(registry.Gather())(t) {
			if f.GetName() != "chubbyclient_call_seconds" {
				continue
			}
			for _, one := range f.GetMetric() {
				counted += one.GetHistogram().GetSampleCount()
			}
			if n := len(f.GetMetric()); n > most {
				t.Errorf("%d histograms, want at most %d", n, most)
			}
		}
		if counted != calls {
			t.Errorf("%d calls are counted of %d", counted, calls)
		}
	}
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
