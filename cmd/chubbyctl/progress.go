package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/chubbylock/chubby/client"
)

// patience is how long a wait may be silent.
const patience = 2 * time.Second

// progress tells a person who waits for a lock why, once the wait is longer
// than patience, and again whenever that changes. Its one goroutine, the timer's,
// has ended when stop returns.
type progress struct {
	o     *workOptions
	early string // what is said as long as no queue has told anything
	timer *time.Timer
	done  chan struct{} // closed when the timer's function has run

	speech sync.Mutex // serialises what is told, in the order in which it was known

	mu    sync.Mutex // guards what follows
	state waitState  // what a lock's queue last told; no place before the cell has told
	late  bool       // patience is over
	shown string     // what was told last, without what changes by itself
	over  bool       // nothing more is to be told
}

// waitState is what a lock's queue last told; there is no place before that.
type waitState client.Queued

func newProgress(o *workOptions, early string) *progress {
	p := &progress{o: o, early: early, done: make(chan struct{})}
	p.timer = time.AfterFunc(patience, func() {
		defer close(p.done)
		p.update(func() { p.late = true })
	})
	return p
}

// queued takes what client.OnQueued tells.
func (p *progress) queued(q client.Queued) { p.update(func() { p.state = waitState(q) }) }

// update changes what is known, and tells it if it is time for that.
func (p *progress) update(change func()) {
	p.speech.Lock()
	defer p.speech.Unlock()
	p.mu.Lock()
	change()
	state, key := p.state, p.state.key()
	tell := p.late && !p.over && key != p.shown
	if tell {
		p.shown = key
	}
	p.mu.Unlock()
	if tell {
		p.tell(state)
	}
}

func (p *progress) stop() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	if !p.timer.Stop() {
		<-p.done
	}
}

// last says how things stood when they were last heard of.
func (p *progress) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text(p.state)
}

// text says what is waited for.
func (p *progress) text(s waitState) string {
	if s.Place == 0 {
		return p.early
	}
	return s.String()
}

// progressFields is one line of progress with -o json.
type progressFields struct {
	Waiting waitFields `json:"waiting"`
}

type waitFields struct {
	Path      string         `json:"path"`
	Place     int            `json:"place"`
	Waiting   int            `json:"waiting"`
	Holders   []holderFields `json:"holders"`
	DelayedS  float64        `json:"delayed_s"`
	EstimateS *float64       `json:"estimate_s"`
}

func (p *progress) tell(s waitState) {
	if !p.o.json() {
		remark(p.o.err, "waiting for %v: %s", p.o.path, p.text(s))
		return
	}
	f := waitFields{
		Path: p.o.path.String(), Place: s.Place, Waiting: s.Waiting, Holders: []holderFields{},
		DelayedS: seconds(s.Delayed), EstimateS: known(s.Estimate),
	}
	for _, h := range s.Holders {
		f.Holders = append(f.Holders, newHolderFields(h))
	}
	// Nobody reads it if it cannot be written.
	_ = printJSON(p.o.err, progressFields{f})
}

// key is equal for states between which nothing has happened but time.
func (s waitState) key() string {
	key := fmt.Sprintf("%d/%d delayed %t", s.Place, s.Waiting, s.Delayed > 0)
	for _, h := range s.Holders {
		key += " " + h.Session.String()
	}
	return key
}

// String says what is waited for: "held by ..., place 2 of 5, perhaps 4m more".
func (s waitState) String() string {
	var text string
	switch {
	case s.Delayed > 0:
		text = fmt.Sprintf("a holder failed, and nobody may have the lock for another %s", roughly(s.Delayed))
	case len(s.Holders) > 0:
		text = heldBy(s.Holders)
		if s.MoreHolders > 0 {
			text += fmt.Sprintf(" and %d more", s.MoreHolders)
		}
	default:
		text = "others are before"
	}
	text += fmt.Sprintf(", place %d of %d", s.Place, s.Waiting)
	if s.Estimate > s.Delayed { // the delay has been told
		text += ", perhaps " + guess(s.Estimate) + " more"
	}
	return text
}
