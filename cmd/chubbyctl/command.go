package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/tenure"
)

// sessionState is the part of client.Client that running a command needs.
type sessionState interface {
	Session() api.SessionID
	tenure.Session
}

// environment returns CMD's environment: this process's, and what is held. With several locks, each lock's
// variables have one line a lock, sorted by name.
func (t *heldLock) environment(session api.SessionID) []string {
	own := []string{"CHUBBY_SESSION=" + session.String()}
	var paths, sequencers, tokens []string
	for _, lock := range t.locks {
		paths = append(paths, lock.Path())
		sequencers = append(sequencers, lock.Sequencer().String())
		tokens = append(tokens, strconv.FormatUint(lock.Token(), 10))
	}
	if len(t.locks) > 0 {
		own = append(own, "CHUBBY_LOCK="+strings.Join(paths, "\n"), "CHUBBY_SEQUENCER="+strings.Join(sequencers, "\n"), "CHUBBY_TOKEN="+strings.Join(tokens, "\n"))
	}
	if t.slot != nil {
		own = append(own, "CHUBBY_SLOT="+strconv.Itoa(*t.slot))
	}
	if t.member != "" {
		own = append(own, "CHUBBY_MEMBER="+t.member)
	}
	return tenure.Environment(own...)
}

// work is a held lock, with what may happen to it while CMD runs.
type work struct {
	name    string // the lock's, for people
	lock    tenure.Lock
	session sessionState
	env     []string
	changed <-chan struct{} // receives when the session enters or leaves jeopardy
	heard   *lastHeard      // nil: nothing is known
	request request         // another client's request; CMD is asked to end if the lock is given up for it
}

// terms returns how CMD runs and ends, by the flags.
func (o *workOptions) terms() tenure.Terms {
	return tenure.Terms{
		LockDelay: o.lockDelay, KillAfter: o.killAfter, Scan: o.scan, Jeopardy: o.jeopardy, Safe: o.safe,
		Guardian: guardianVerb, Verbose: o.verbose, Notice: o.notice, Warn: o.warn,
	}
}

// supervise runs CMD while the lock is held. It returns tenure.NotBegun if CMD certainly did not begin.
func (o *workOptions) supervise(w work) error {
	err := tenure.Command{
		Terms: o.terms(), Name: w.name, Lock: w.lock, Session: w.session, Program: o.program, Args: o.argv, Env: w.env,
		Changed: w.changed, Heard: w.heard, Asked: w.request.asked, GivesUp: func() bool { return o.noticeRequest(w.request) },
	}.Run(o.signals)
	var ended *tenure.Ended
	switch {
	case !errors.As(err, &ended):
		return err
	case ended.Lost:
		return &exitError{exitLost, err}
	case ended.Err != nil:
		return &exitError{exitFailed, err}
	}
	return exitWith(ended.Code)
}

func (o *workOptions) checkBudget(lease time.Duration) error {
	if err := o.terms().Budget(lease).Check(); err != nil {
		return usagef("%s: %v", o.verb, err)
	}
	return nil
}

func (o *workOptions) keepSequencer(held context.Context, sequencer string) (forget func(), err error) {
	forget, err = tenure.KeepSequencer(held, o.sequencerFile, sequencer, o.warn)
	return forget, usageOf(err)
}

// usageOf turns the error of an unusable sequencer file into a usage error.
func usageOf(err error) error {
	if errors.As(err, new(tenure.FileError)) {
		return usagef("%v", err)
	}
	return err
}

func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// lastHeard is what replicas said when the cell stopped answering.
type lastHeard struct{ text atomic.Pointer[string] }

// String returns the text after a colon, or "".
func (h *lastHeard) String() string {
	if h == nil || h.text.Load() == nil || *h.text.Load() == "" {
		return ""
	}
	return ": " + *h.text.Load()
}
