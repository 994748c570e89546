package main

import (
	"cmp"
	"fmt"

	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type lockWait struct {
	o        *workOptions
	early    string // the text until the cell reports the queue
	progress *term.Progress[waitState]
}

// waitState is the queue as last reported; Place is 0 before that.
type waitState struct {
	client.Queued
	path string // the lock's
}

func (o *workOptions) showWait(early string) *lockWait {
	w := &lockWait{o: o, early: early}
	w.progress = term.NewProgress(waitState.key, w.show)
	return w
}

// queued is for client.OnQueued.
func (w *lockWait) queued(q client.Queued) { w.queuedFor(w.o.path.String(), q) }

// queuedFor is queued for one of several locks.
func (w *lockWait) queuedFor(path string, q client.Queued) { w.progress.Update(waitState{q, path}) }

func (w *lockWait) stop() { w.progress.Stop() }

func (w *lockWait) last() string { return w.text(w.progress.Last()) }

func (w *lockWait) text(s waitState) string {
	if s.Place == 0 {
		return w.early
	}
	return s.String()
}

type waitFields struct {
	Path        string         `json:"path"`
	Place       int            `json:"place"`
	Waiting     int            `json:"waiting"`
	Holders     []holderFields `json:"holders"`
	DelayedS    float64        `json:"delayed_s"`
	EstimateS   *float64       `json:"estimate_s"`
	MoreHolders int            `json:"more_holders,omitempty"`
}

func (w *lockWait) show(s waitState) {
	if w.o.quiet {
		return
	}
	if !w.o.json() {
		term.Remark(w.o.err, "waiting for %s: %s", cmp.Or(s.path, w.o.path.String()), w.text(s))
		return
	}
	f := waitFields{
		cmp.Or(s.path, w.o.path.String()), s.Place, s.Waiting, newHolderList(s.Holders),
		term.Seconds(s.Delayed), term.SecondsOrNull(s.Estimate), s.MoreHolders,
	}
	_ = w.o.output.Print(w.o.err, map[string]waitFields{"waiting": f}) // if it cannot be written, nobody reads it
}

// key is equal for states that differ only in time.
func (s waitState) key() string {
	key := fmt.Sprintf("%s %d/%d delayed %t", s.path, s.Place, s.Waiting, s.Delayed > 0)
	for _, h := range s.Holders {
		key += " " + h.Session.String()
	}
	return key
}

// String describes the wait: "held by ..., place 2 of 5, perhaps 4m more".
func (s waitState) String() string {
	var text string
	switch {
	case s.Delayed > 0:
		text = fmt.Sprintf("a holder failed, and nobody may have the lock for another %s", term.Roughly(s.Delayed))
	case len(s.Holders) > 0:
		text = heldBy(s.Holders)
		if s.MoreHolders > 0 {
			text += fmt.Sprintf(" and %d more", s.MoreHolders)
		}
	default:
		text = "others are before"
	}
	text += fmt.Sprintf(", place %d of %d", s.Place, s.Waiting)
	if s.Estimate > s.Delayed { // else the text has the delay
		text += ", perhaps " + term.Guess(s.Estimate) + " more"
	}
	return text
}
