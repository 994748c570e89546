package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/tenure"
	"github.com/chubbylock/chubby/sequencer"
)

// party returns a session and its owner, for -o json: a holder, a waiter, or the cause of a delay.
func party(h api.Holder) term.Fields {
	return term.Fields{"session", h.Session.String(), "principal", h.Principal, "host", h.Host, "pid", h.PID}
}

func holderFields(h api.Holder) term.Fields {
	return append(party(h), "since_s", int64(since(h.SinceUnix).Seconds()), "reason", h.Reason).With("cached", h.Cached).With("owner", h.Owner)
}

// whoIs names a holder's session for people: "ann on web3 (pid 4711, s42)".
func whoIs(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d, %v)", whoseSession(h), h.PID, h.Session)
	}
	return fmt.Sprintf("%s (%v)", whoseSession(h), h.Session)
}

// whoseProcess is whoIs without the session's number, which has its own column.
func whoseProcess(h api.Holder) string {
	if h.PID != 0 {
		return fmt.Sprintf("%s (pid %d)", whoseSession(h), h.PID)
	}
	return whoseSession(h)
}

func whoseSession(h api.Holder) string {
	who := h.Principal
	if who == "" {
		who = "somebody"
	}
	if h.Host != "" {
		who += " on " + h.Host
	}
	return who
}

// heldBy names a lock's holders: "held by ann on web3 (pid 4711, s42) for 3m12s (deploy)".
func heldBy(holders []api.Holder) string {
	parts := make([]string, len(holders))
	for i, h := range holders {
		parts[i] = fmt.Sprintf("%s for %s", whoIs(h), term.Roughly(since(h.SinceUnix)))
		if h.Reason != "" {
			parts[i] += " (" + h.Reason + ")"
		}
	}
	return "held by " + strings.Join(parts, ", ")
}

// heldLock is what is held while CMD runs, and how to give it up: a lock, several, or a membership.
type heldLock struct {
	lock   tenure.Lock
	locks  []*client.Lock // sorted by name; empty for a membership
	member string         // the path of a membership's file; else empty
	slot   *int           // of a semaphore; else nil
	giveUp func(context.Context) error

	request request // from another client
}

func holding(lock *client.Lock, giveUp func(context.Context) error) *heldLock {
	return &heldLock{lock: lock, locks: []*client.Lock{lock}, giveUp: giveUp}
}

// together are several locks that count as one: the loss of any is its loss.
type together struct{ *recipe.Locks }

func (t together) ExclusiveUntil() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, lock := range t.Locks.Locks() {
		least = min(least, lock.ExclusiveUntil())
	}
	return least
}

// String names what is held: "/ls/foo/a", or "one of /ls/foo/a, /ls/foo/b".
func (t *heldLock) String() string {
	switch paths := term.Each(t.locks, (*client.Lock).Path); len(paths) {
	case 0:
		return t.member
	case 1:
		return paths[0]
	default:
		return "one of " + strings.Join(paths, ", ")
	}
}

// sequencer returns the sequencer for --sequencer-file, of one lock.
func (t *heldLock) sequencer() string {
	if len(t.locks) == 0 {
		return ""
	}
	return t.locks[0].Sequencer().String()
}

func (o *workOptions) printHeld(c *client.Client, t *heldLock) error {
	remark := fmt.Sprintf("holding %v until Ctrl-C (SIGINT) or SIGTERM; send the line above with every request that the lock protects", t)
	if t.member != "" {
		remark = "a member until Ctrl-C (SIGINT) or SIGTERM"
		if o.json() {
			return o.output.Print(o.out, term.Fields{"path", t.member, "session", c.Session().String(), "epoch", c.Epoch()})
		}
		if _, err := fmt.Fprintln(o.out, t.member); err != nil {
			return err
		}
	}
	for _, l := range t.locks {
		fields := term.Fields{
			"path", l.Path(), "mode", l.Mode().String(), "sequencer", l.Sequencer().String(), "token", l.Token(),
			"session", c.Session().String(), "epoch", c.Epoch(),
		}.With("slot", t.slot)
		if err := o.output.Say(o.out, fields, "%v", l.Sequencer()); err != nil {
			return err
		}
	}
	if !o.json() && !o.quiet {
		term.Remark(o.err, "%s", remark)
	}
	return nil
}

// holdLock prints the sequencer, and holds the lock until an interrupt, its loss, or another client's request.
func (o *workOptions) holdLock(ctx context.Context, c *client.Client, t *heldLock) error {
	if err := o.printHeld(c, t); err != nil { // nobody would know the lock
		return &exitError{exitFailed, fmt.Errorf("%v is given up: what is to be known of it could not be written: %w", t, err)}
	}
	asked := t.request.asked
	for {
		select {
		case <-ctx.Done():
			return t.loss()
		case <-asked:
			asked = nil
			if o.noticeRequest(t.request) {
				return t.loss()
			}
		case <-t.lock.Context().Done():
			return t.loss()
		}
	}
}

// loss returns the loss of what is held, even if a signal or a request coincides; nil if it is held.
func (t *heldLock) loss() error {
	if err := cmp.Or(t.lock.Err(), context.Cause(t.lock.Context())); err != nil {
		return &exitError{exitLost, fmt.Errorf("%v was lost: %w", t, err)}
	}
	return nil
}

// giveUpLock gives the lock up. If the cell is silent it retries until the lease ends: a release saves the next
// holder the lock-delay. After that little is gained, and others wait for the exit code.
func (o *workOptions) giveUpLock(ctx context.Context, c tenure.Session, t *heldLock) {
	if t.lock.Err() != nil {
		return // it is lost already
	}
	ctx, cancel := context.WithTimeout(ctx, min(o.timeout, max(c.Left(), farewellBound)))
	defer cancel()
	silent := time.AfterFunc(term.Patience, func() {
		o.notice(fmt.Sprintf("the work has ended, and the cell does not answer: trying to release the lock for %s; Ctrl-C leaves that to the end of the session", term.Roughly(c.Left())))
	})
	defer silent.Stop()
	if err := t.giveUp(ctx); err != nil && !isLost(err) {
		if t.member != "" {
			o.notice(fmt.Sprintf("%v may still be there (%v); it goes when the session has ended, at the latest", t, err))
			return
		}
		o.notice(fmt.Sprintf("%v may not be released yet (%v); it is free when lease and lock-delay have ended, at the latest", t, err))
	}
}

// isLost reports whether an error of a release says that the lock was lost before.
func isLost(err error) bool {
	return errors.Is(err, api.LockLost) || errors.Is(err, api.SessionExpired)
}

// request is another client's request for what is held. The zero request never comes.
type request struct {
	asked <-chan struct{} // closed when it comes
	yield bool            // give up what is held then
	told  func() string   // the message to the user
	stop  func()          // ends the listener and waits for it; may be nil
}

// noticeRequest tells the user about the request, and reports whether to give way.
func (o *workOptions) noticeRequest(r request) bool {
	o.notice(r.told())
	return r.yield
}

// listenForConflicts returns the first request for the lock held through a handle: its holder gives way.
func listenForConflicts(h *client.Handle, lock *client.Lock) request {
	ctx, cancel := context.WithCancel(lock.Context())
	asked, ended := make(chan struct{}), make(chan struct{})
	why := "without a reason" // until asked is closed
	go func() {
		defer close(ended)
		for {
			e, err := h.Next(ctx)
			if err != nil {
				return // the lock is gone, or nobody listens
			}
			// A missed event may have been a request: an unneeded release does no harm.
			if e.Kind == api.EventConflictingLock || e.Kind == api.EventLost {
				if e.Explanation != "" {
					why = "(" + e.Explanation + ")"
				}
				close(asked)
				return
			}
		}
	}()
	stop := func() {
		cancel()
		<-ended
	}
	told := func() string { return fmt.Sprintf("another asks for %s %s: giving way", lock.Path(), why) }
	return request{asked: asked, yield: true, told: told, stop: stop}
}

func sequencerCheckVerb(g *globals, cmd *cobra.Command, args []string) error {
	seq, err := sequencer.Parse(args[0])
	if err == nil {
		err = g.withCell(cmd.Context(), seq.Path.Cell(), func(ctx context.Context, c *client.Cell) error {
			return c.CheckSequencer(ctx, args[0])
		})
	}
	if err != nil && api.CodeOf(err) != api.BadSequencer {
		return err // nothing is known about the sequencer
	}
	verdict, line := term.Fields{"valid", err == nil}, "valid"
	if !seq.Path.IsZero() {
		verdict = append(verdict, "path", seq.Path.String())
	}
	verdict = verdict.With("token", seq.Token())
	if err != nil {
		verdict, line = verdict.With("explanation", explanation(err)), "not valid: "+explanation(err)
		err = &exitError{code: exitMismatch}
	}
	return errors.Join(g.output.Say(cmd.OutOrStdout(), verdict, "%s", line), err)
}

func sequencerShowVerb(g *globals, cmd *cobra.Command, args []string) error {
	seq, err := sequencer.Parse(args[0])
	if err != nil {
		return &exitError{exitMismatch, err}
	}
	f := term.Fields{"path", seq.Path.String(), "mode", seq.Mode.String(), "token", seq.Token(), "cell_id", seq.Cell}
	return g.output.Show(cmd.OutOrStdout(), f, func(p *term.Page) {
		p.Fields("path", seq.Path, "mode", seq.Mode, "token", seq.Token(), "cell id", seq.Cell)
	})
}

// sequencerCondition is the flag --if-sequencer: it requires that the sequencer's lock is still held in its
// generation.
type sequencerCondition struct {
	text  string
	given bool // also with an empty text, as from an unset variable
}

func (s *sequencerCondition) flag(cmd *cobra.Command, does string) {
	cmd.Flags().StringVar(&s.text, "if-sequencer", "", does+" only if the sequencer `SEQ` is valid: its lock is still held")
}

// parse returns the sequencer, or nil without the flag. It rejects text that is no sequencer like an invalid
// one, before anything is sent.
func (s *sequencerCondition) parse(cmd *cobra.Command) (*sequencer.Sequencer, error) {
	if s.given = cmd.Flags().Changed("if-sequencer"); !s.given {
		return nil, nil
	}
	seq, err := sequencer.Parse(s.text)
	if err != nil {
		return nil, s.exitCodeOf(fmt.Errorf("--if-sequencer: %w", err))
	}
	return &seq, nil
}

// options returns the options that make a change depend on the sequencer.
func (s *sequencerCondition) options(cmd *cobra.Command) ([]client.WriteOption, error) {
	seq, err := s.parse(cmd)
	if seq == nil {
		return nil, err
	}
	return []client.WriteOption{client.IfSequencer(*seq)}, nil
}

func (s *sequencerCondition) exitCodeOf(err error) error {
	if s.given && api.CodeOf(err) == api.BadSequencer {
		return &exitError{exitMismatch, err}
	}
	return err
}
