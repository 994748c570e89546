//go:build linux

package client_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// histories is what is known of the nodes of a scenario, and whether it can be true.
type histories struct {
	t *testing.T

	mu     sync.Mutex // guards what follows
	nodes  map[string]*history
	halted map[string]bool // hosts whose clocks stand still: what they call counts as called before
	held   map[string][]*held
	faults []string
	counts map[string]int
}

// history is that of one name. Generations only grow, also from one node of that name to the next.
type history struct {
	texts   map[api.Generation]string // by the generation of the contents
	newest  api.Generation            // that was read, or whose write was acknowledged
	dead    map[api.Generation]bool   // instances whose deletion was acknowledged
	refused map[string]error
	doubts  []*doubt
	cas     map[api.Generation]api.Generation // of a conditional write, from which to which
	fenced  map[api.Generation]*client.Lock   // under which lock it was written
	token   uint64                            // the highest of a lock that was had
}

// doubt is a write of which its author does not know whether it was done.
type doubt struct {
	text   string
	before api.Generation // the next that its author has done; 0 if none was
}

// held is a lock that somebody has had.
type held struct {
	host string
	lock *client.Lock
}

// before is what is known before a call.
type before struct {
	host, path string
	halted     bool
	newest     api.Generation
	token      uint64
	dead       map[api.Generation]bool
}

func newHistories(t *testing.T) *histories {
	return &histories{t: t, nodes: map[string]*history{}, halted: map[string]bool{}, held: map[string][]*held{}, counts: map[string]int{}}
}

func (m *histories) fault(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(format, args...)
}

// note is fault; mu is held.
func (m *histories) note(format string, args ...any) {
	if len(m.faults) < 20 {
		m.faults = append(m.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// of returns the history of a name; mu is held.
func (m *histories) of(path string) *history {
	h := m.nodes[path]
	if h == nil {
		h = &history{
			texts: map[api.Generation]string{}, dead: map[api.Generation]bool{}, refused: map[string]error{},
			cas: map[api.Generation]api.Generation{}, fenced: map[api.Generation]*client.Lock{},
		}
		m.nodes[path] = h
	}
	return h
}

func (m *histories) halt(host string, halted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halted[host] = halted
}

func (m *histories) look(host, path string) before {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.of(path)
	return before{host: host, path: path, halted: m.halted[host], newest: h.newest, token: h.token, dead: maps.Clone(h.dead)}
}

// saw takes note of what was read.
func (m *histories) saw(was before, text string, stat api.Stat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["reads"]++
	h := m.of(was.path)
	if !was.halted {
		if stat.Content < was.newest {
			m.note("%s: %s: stale: generation %d, and before the call %d was known", was.host, was.path, stat.Content, was.newest)
		}
		if was.dead[stat.Instance] {
			m.note("%s: %s: instance %d was read after its deletion", was.host, was.path, stat.Instance)
		}
	}
	m.learn(was.path, h, text, stat.Content)
}

// learn takes note of contents; mu is held.
func (m *histories) learn(path string, h *history, text string, g api.Generation) {
	if known, ok := h.texts[g]; ok && known != text {
		m.note("%s: generation %d is %q and %q", path, g, known, text)
	}
	h.texts[g] = text
	h.newest = max(h.newest, g)
}

// wrote takes note of a write that was acknowledged.
func (m *histories) wrote(was before, text string, stat api.Stat, from api.Generation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["writes"]++
	h := m.of(was.path)
	if stat.Content <= was.newest {
		m.note("%s: %s: a write has generation %d, and before it %d was known", was.host, was.path, stat.Content, was.newest)
	}
	if was.dead[stat.Instance] {
		m.note("%s: %s: instance %d was written after its deletion", was.host, was.path, stat.Instance)
	}
	if from != 0 {
		h.cas[stat.Content] = from
	}
	m.learn(was.path, h, text, stat.Content)
}

func (m *histories) refused(path, text string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["refused"]++
	m.of(path).refused[text] = fmt.Errorf("%w", cmp.Or(err, errors.New("the node was there")))
}

func (m *histories) doubtful(path, text string) *doubt {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["doubtful"]++
	d := &doubt{text: text}
	m.of(path).doubts = append(m.of(path).doubts, d)
	return d
}

func (m *histories) settle(d *doubt, g api.Generation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d.before = g
}

func (m *histories) removed(path string, instance api.Generation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["deletions"]++
	m.of(path).dead[instance] = true
}

// noticed takes note that an Open was refused: what stays is there.
func (m *histories) noticed(was before, err error) {
	if slices.Contains(registers, was.path) && errors.Is(err, api.NotFound) {
		m.fault("%s: %s: %v", was.host, was.path, err)
	}
}

// fenced takes note that a write was made under a lock's sequencer.
func (m *histories) fenced(path string, g api.Generation, l *client.Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["fenced"]++
	m.of(path).fenced[g] = l
}

// hold takes note of a lock that somebody has been given.
func (m *histories) hold(was before, l *client.Lock) *held {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts["locks"]++
	if l.Mode() == api.Exclusive && l.Token() == was.token {
		m.counts["locks kept"]++
	}
	one := &held{host: was.host, lock: l}
	h := m.of(was.path)
	if live := !was.halted && !m.halted[was.host] && l.Context().Err() == nil; live {
		for _, other := range m.held[was.path] {
			if !m.halted[other.host] && other.lock.Context().Err() == nil && (l.Mode() == api.Exclusive || other.lock.Mode() == api.Exclusive) {
				m.note("%s: %s holds it (%v, token %d), and %s does (%v, token %d)", was.path, one.host, l.Mode(), l.Token(), other.host, other.lock.Mode(), other.lock.Token())
			}
		}
		if l.Token() < was.token {
			m.note("%s: %s has token %d, and before the call %d was known", was.path, one.host, l.Token(), was.token)
		}
	}
	h.token = max(h.token, l.Token())
	m.held[was.path] = append(m.held[was.path], one)
	return one
}

// letGo forgets a lock that was released, or has been lost.
func (m *histories) letGo(one *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	path := one.lock.Path()
	if one.lock.Context().Err() == nil {
		return // until its handle is closed
	}
	m.held[path] = slices.DeleteFunc(m.held[path], func(h *held) bool { return h == one })
}

// check reports what cannot be true.
func (m *histories) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, h := range m.nodes {
		order := slices.Sorted(maps.Keys(h.texts))
		var last *client.Lock
		for i, g := range order {
			text := h.texts[g]
			if err := h.refused[text]; err != nil && text != "" {
				m.note("%s: %q was refused, and is generation %d: %v", path, text, g, err)
			}
			if from, ok := h.cas[g]; ok && i > 0 && order[i-1] != from {
				m.note("%s: generation %d was to follow %d, and follows %d", path, g, from, order[i-1])
			}
			if l := h.fenced[g]; l != nil {
				if last != nil && l.Token() < last.Token() {
					m.note("%s: generation %d was written under token %d, and the one before under %d", path, g, l.Token(), last.Token())
				}
				last = l
			}
		}
		for _, d := range h.doubts {
			for g, text := range h.texts {
				if text == d.text && d.before != 0 && g > d.before {
					m.note("%s: %q was done as generation %d, after the next of its author, %d", path, text, g, d.before)
				}
			}
		}
	}
	for _, f := range m.faults {
		m.t.Error(f)
	}
	m.t.Logf("%v", m.counts)
}
