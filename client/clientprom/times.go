package clientprom

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/prometheus/client_golang/prometheus"
)

// maxCalls bounds the pairs of an operation and a code that have a histogram of their own. The library
// has some 40 operations, of which a program uses few; further pairs are counted together.
const maxCalls = 512

// The labels of those, and of codes that this version does not know, as a newer cell may answer with.
const (
	otherOp   = "other"
	otherCode = "other"
)

// callTimes is how long calls took, by operation and code. Every call passes here, so it finds the
// histogram of a call without a lock, and without making anything.
type callTimes struct {
	all *prometheus.HistogramVec
	one atomic.Pointer[map[callKind]prometheus.Observer] // never changed: replaced, by an owner of mu

	mu sync.Mutex // is held while one is replaced
}

type callKind struct {
	op   string
	code api.Code // unknownCode for all that are not known
}

// unknownCode is no code of a cell.
const unknownCode api.Code = math.MaxUint32

func newCallTimes() *callTimes {
	t := &callTimes{all: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "call_seconds",
		Help:    "Time of a call with all its attempts, by operation, in the words of errors, and by code. Calls that a cache answered, and KeepAlives, are not among them; those that acquire locks wait as long as they have to.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
	}, []string{"op", "code"})}
	t.one.Store(&map[callKind]prometheus.Observer{})
	return t
}

func (t *callTimes) called(op string, code api.Code, took time.Duration) {
	one := (*t.one.Load())[callKind{op, code}]
	if one == nil {
		one = t.add(callKind{op, code})
	}
	one.Observe(took.Seconds())
}

// add makes the histogram of calls that none has been told of before.
func (t *callTimes) add(kind callKind) prometheus.Observer {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, code := *t.one.Load(), kind.code.String()
	if kind.code != api.OK && !slices.Contains(api.Codes(), kind.code) {
		kind.code, code = unknownCode, otherCode
	}
	if len(known) >= maxCalls {
		kind.op = otherOp // of which there are as many as there are codes
	}
	if one := known[kind]; one != nil {
		return one
	}
	one, next := t.all.WithLabelValues(kind.op, code), maps.Clone(known)
	next[kind] = one
	t.one.Store(&next)
	return one
}

// modeTimes is how long something about locks took, by the mode of the lock.
type modeTimes struct {
	all *prometheus.HistogramVec

	exclusive, shared prometheus.Observer
}

func newModeTimes(name, help string) *modeTimes {
	t := &modeTimes{all: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 4, 12), // up to half an hour, as the cell's
	}, []string{"mode"})}
	t.exclusive, t.shared = t.all.WithLabelValues(api.Exclusive.String()), t.all.WithLabelValues(api.Shared.String())
	return t
}

func (t *modeTimes) observe(mode api.LockMode, took time.Duration) {
	one := t.exclusive
	if mode == api.Shared {
		one = t.shared
	}
	one.Observe(took.Seconds())
}
