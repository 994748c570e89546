//go:build linux

// A cell needs more of its system than a client does.

package clientprom_test

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/clientprom"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// linesWith returns the lines of a metrics page that begin with one of the words.
func linesWith(page io.Reader, words ...string) (list []string) {
	for lines := bufio.NewScanner(page); lines.Scan(); {
		if slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(lines.Text(), word) }) {
			list = append(list, lines.Text())
		}
	}
	return list
}

// world is a cell, and the metrics of its clients.
type world struct {
	t       *testing.T
	cell    *celltest.Cell
	metrics *clientprom.Metrics
	config  client.Config
	gather  prometheus.Gatherer
}

func newWorld(t *testing.T, replicas int) *world {
	t.Helper()
	w := &world{t: t, cell: celltest.Start(t, replicas), metrics: clientprom.New()}
	registry := prometheus.NewPedanticRegistry() // it compares what is described with what is collected
	registry.MustRegister(w.metrics)
	w.gather = registry
	w.config = client.Config{Servers: w.cell.Servers(), Dialer: w.cell.Dial, Clock: celltest.Clock, Meter: w.metrics.Meter()}
	return w
}

// open opens a session, and a file in it.
func (w *world) open(opts client.OpenOptions) (*client.Client, *client.Handle) {
	w.t.Helper()
	c := ok(client.New(w.t.Context(), w.config))(w.t)
	opts.Create, opts.Write = client.File, true
	h := ok(c.Open(w.t.Context(), "/ls/local/file", opts))(w.t)
	return c, h
}

func (w *world) families() []*dto.MetricFamily {
	w.t.Helper()
	return ok(w.gather.Gather())(w.t)
}

// read returns a metric without its namespace, with the values of the labels after its name: a value, or the count and the
// sum of a histogram. The value of one that is missing is -1.
func (w *world) read(name string, labels ...string) (value, sum float64) {
	w.t.Helper()
	for _, f := range w.families() {
		if f.GetName() != "chubbyclient_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, pair := range m.GetLabel() { // sorted by name
				values = append(values, pair.GetValue())
			}
			if !slices.Equal(values, labels) {
				continue
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				return m.GetCounter().GetValue(), 0
			case dto.MetricType_GAUGE:
				return m.GetGauge().GetValue(), 0
			default:
				return float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			}
		}
	}
	return -1, 0
}

func (w *world) want(want float64, name string, labels ...string) {
	w.t.Helper()
	if got, _ := w.read(name, labels...); got != want {
		w.t.Errorf("%s%v is %v; want %v", name, labels, got, want)
	}
}

// wantTime is for a histogram with so many values, which are that long together, give or take round trips.
func (w *world) wantTime(count float64, total time.Duration, name string, labels ...string) {
	w.t.Helper()
	got, sum := w.read(name, labels...)
	if got != count || sum < total.Seconds() || sum > total.Seconds()+0.1 {
		w.t.Errorf("%s%v has %v values of %v s together; want %v of %v", name, labels, got, sum, count, total)
	}
}

// What a client does is counted as it happens.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.want(-1, "lease_left_seconds")
		one, first := w.open(client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
		two, second := w.open(client.OpenOptions{Read: true})
		w.want(2, "sessions", "safe")
		w.want(2, "handles_open")
		if left, _ := w.read("lease_left_seconds"); left < 5 || left > 12 {
			t.Errorf("lease_left_seconds is %v; want some of 12", left)
		}
		for range 3 { // the first asks the cell, and for a cache lease
			if _, _, err := first.Contents(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.want(2, "cache_hits_total")
		w.want(1, "call_seconds", "OK", "read")

		held := ok(first.Acquire(t.Context(), api.Exclusive))(t)
		if _, err := second.TryAcquire(t.Context(), api.Exclusive); !errors.Is(err, api.LockHeld) {
			t.Fatal(err)
		}
		w.want(1, "call_seconds", "LockHeld", "try to acquire")
		granted := make(chan *client.Lock)
		go func() {
			l, err := second.Acquire(t.Context(), api.Shared)
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		time.Sleep(20 * time.Second)
		w.want(1, "lock_requests_waiting")
		w.wantTime(1, 0, "lock_wait_seconds", "exclusive")
		w.want(0, "lock_hold_seconds", "exclusive")
		must(t, held.Release(t.Context()))
		next := <-granted
		w.wantTime(1, 20*time.Second, "lock_hold_seconds", "exclusive")
		w.wantTime(1, 20*time.Second, "lock_wait_seconds", "shared")
		w.want(0, "lock_requests_waiting")

		must(t, errOf(second.SetContents(t.Context(), []byte("news"))))
		time.Sleep(time.Second)
		w.want(1, "cache_invalidations_total")
		w.want(1, "events_waiting")
		w.want(0, "events_delivered_total")
		must(t, errOf(first.Next(t.Context())))
		w.want(0, "events_waiting")
		w.want(1, "events_delivered_total")

		time.Sleep(10 * time.Second)
		if err := two.Close(t.Context()); err != nil { // with a lock that was not released
			t.Fatal(err)
		}
		_ = next
		w.wantTime(1, 11*time.Second, "lock_hold_seconds", "shared")
		must(t, one.Close(t.Context()))
		w.want(0, "sessions", "safe")
		w.want(2, "sessions_opened_total")
		w.want(2, "cache_hits_total")
		w.want(1, "events_delivered_total")
		w.want(0, "sessions_lost_total")
		w.want(-1, "lease_left_seconds")
	})
}

// A lock that is kept between two uses is held for the time of each.
func TestKeptLocksAreCountedByUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c, h := w.open(client.OpenOptions{CacheLock: true})
		for range 3 {
			l := ok(h.Acquire(t.Context(), api.Exclusive))(t)
			time.Sleep(2 * time.Second)
			must(t, l.Release(t.Context()))
			time.Sleep(time.Second)
		}
		w.want(1, "call_seconds", "OK", "acquire")
		w.wantTime(3, 0, "lock_wait_seconds", "exclusive")
		w.wantTime(3, 6*time.Second, "lock_hold_seconds", "exclusive")
		must(t, c.Close(t.Context()))
	})
}

// Events that the program does not take are counted when there is no room for them any more.
func TestDroppedEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.config.NoCache = true
		one, _ := w.open(client.OpenOptions{Read: true, Events: []api.EventKind{api.EventContentsModified}})
		two, writer := w.open(client.OpenOptions{Read: true})
		const more = 10
		for range api.MaxEventQueue + more {
			must(t, errOf(writer.SetContents(t.Context(), nil)))
		}
		time.Sleep(time.Second)
		waiting, _ := w.read("events_waiting")
		dropped, _ := w.read("events_dropped_total")
		if waiting != api.MaxEventQueue+1 || dropped != more {
			t.Errorf("%v events wait, and %v were dropped; want %d with that which says so, and %d", waiting, dropped, api.MaxEventQueue+1, more)
		}
		for _, c := range []*client.Client{one, two} {
			must(t, c.Close(t.Context()))
		}
	})
}

// Fail-overs, jeopardy and the loss of a session can be told from each other, and what was counted stays.
func TestTroublesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		c, h := w.open(client.OpenOptions{Read: true})
		killed := w.cell.FailOver()
		must(t, errOf(h.SetContents(t.Context(), nil)))
		time.Sleep(5 * time.Second)
		w.want(1, "failovers_total")
		w.want(0, "jeopardies_total")
		attempts, _ := w.read("attempts_total")
		if attempts < 2 {
			t.Errorf("attempts_total is %v", attempts)
		}
		w.cell.Restart(killed)

		w.cell.Sever(client0)
		time.Sleep(5 * time.Second)
		if again, _ := w.read("reconnects_total"); again < 1 {
			t.Errorf("reconnects_total is %v after the connections broke", again)
		}
		first, second := w.cell.FailOver(), w.cell.Master()
		w.cell.Kill(second) // so that there is no majority
		time.Sleep(15 * time.Second)
		w.want(1, "sessions", "jeopardy")
		w.want(1, "jeopardies_total")
		if left, _ := w.read("lease_left_seconds"); left >= 0 {
			t.Errorf("lease_left_seconds is %v in jeopardy", left)
		}
		w.cell.Restart(first)
		w.cell.Restart(second)
		time.Sleep(15 * time.Second)
		w.want(1, "sessions", "safe")
		w.want(1, "rescues_total")
		if failed, _ := w.read("keepalives_failed_total"); failed < 1 {
			t.Errorf("keepalives_failed_total is %v", failed)
		}

		w.cell.Expire(c.Session())
		time.Sleep(15 * time.Second)
		w.want(1, "sessions", "expired")
		w.want(1, "sessions_lost_total")
		w.want(-1, "lease_left_seconds")
		must(t, c.Close(t.Context()))
		w.want(0, "sessions", "expired")
		w.want(1, "sessions_lost_total")
		w.want(1, "jeopardies_total")
		if now, _ := w.read("attempts_total"); now < attempts {
			t.Errorf("attempts_total went from %v back to %v when the session was closed", attempts, now)
		}
	})
}

const client0 = "client" // the host of clients that use Cell.Dial

// The library may be asked about its sessions while it tells of them: it holds no mutex meanwhile.
func TestMeterMayAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		told, inner := map[string]bool{}, *w.config.Meter
		ask := func(what string) {
			told[what] = true // one goroutine of the program calls at a time
			w.families()
		}
		w.config.Meter = &client.Meter{
			Opened:   func(c *client.Client) { inner.Opened(c); ask("Opened") },
			Closed:   func(c *client.Client) { ask("Closed"); inner.Closed(c) },
			Called:   func(op string, code api.Code, took time.Duration) { inner.Called(op, code, took); w.families() },
			Acquired: func(mode api.LockMode, took time.Duration) { inner.Acquired(mode, took); ask("Acquired") },
			Released: func(mode api.LockMode, took time.Duration) { inner.Released(mode, took); ask("Released") },
			Connected: func(again bool) {
				inner.Connected(again)
				w.families()
			},
		}
		c, h := w.open(client.OpenOptions{Read: true, CacheLock: true})
		for range 2 {
			l := ok(h.Acquire(t.Context(), api.Exclusive))(t)
			must(t, l.Release(t.Context()))
		}
		must(t, errOf(h.Acquire(t.Context(), api.Exclusive)))
		if err := h.Close(t.Context()); err != nil { // with its lock
			t.Fatal(err)
		}
		must(t, c.Close(t.Context()))
		if len(told) != 4 {
			t.Errorf("told of %v", told)
		}
		w.wantTime(3, 0, "lock_hold_seconds", "exclusive")
	})
}
