package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/sequencer"
)

// A write that depends on what is no sequencer is not one without a condition:
// whoever has no lock has a zero Sequencer.
func TestIfSequencerOfNoSequencer(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		for name, none := range map[string]sequencer.Sequencer{
			"zero": {}, "without a cell": {Path: api.MustParsePath("/ls/foo/x"), Mode: api.Exclusive, Generation: 7},
		} {
			condition := IfSequencer(none)
			for what, call := range map[string]func() error{
				"SetContents": func() error { _, err := h.SetContents(t.Context(), nil, condition); return err },
				"SetACL":      func() error { _, err := h.SetACL(t.Context(), api.ACL{}, condition); return err },
				"Delete":      func() error { return h.Delete(t.Context(), condition) },
			} {
				if err := call(); !errors.Is(err, api.BadSequencer) || len(f.heard(what)) != 0 {
					t.Errorf("%s, %s: %v, and %d requests were sent", name, what, err, len(f.heard(what)))
				}
			}
		}
	})
}

// The condition goes to the log with the creation: the token of the directory in the Open is bound to the sequencer, and the
// handle of the directory is as it was.
func TestOpenIfSequencerBindsTheOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		seq := l.Sequencer()
		dir := opened(t, c, "/ls/foo/dir", OpenOptions{Write: true, Create: Directory})
		before := len(f.heard("Open"))
		must(t, second(dir.Open(t.Context(), "below", OpenOptions{Write: true, Create: NewFile, Ephemeral: true, IfSequencer: &seq})))
		bound, sent := f.heard("SetSequencer"), f.heard("Open")[before:]
		if len(bound) != 1 || bound[0].request.(*chubbypb.SetSequencerRequest).GetSequencer() != seq.String() {
			t.Fatalf("SetSequencer: %+v", bound)
		}
		token := string(dir.currentToken())
		if got := string(sent[0].request.(*chubbypb.OpenRequest).GetDirectory()); len(sent) != 1 || got != token+"+" || got == token {
			t.Errorf("opened below %q; the directory is %q", got, token)
		}
		for what, o := range map[string]OpenOptions{
			"of a node that is there": {Read: true, IfSequencer: &seq},
			"without a sequencer":     {Read: true, Create: File, IfSequencer: &sequencer.Sequencer{}},
		} {
			want := map[bool]api.Code{true: api.InvalidArgument, false: api.BadSequencer}[o.Create == Existing]
			if _, err := c.Open(t.Context(), "/ls/foo/dir/x", o); api.CodeOf(err) != want || len(f.heard("Open")) != before+1 {
				t.Errorf("%s: %v; want %v, and no call", what, err, want)
			}
		}
		if _, err := c.Open(t.Context(), "/ls/foo", OpenOptions{Write: true, Create: Directory, IfSequencer: &seq}); api.CodeOf(err) != api.InvalidArgument {
			t.Errorf("the root: %v", err)
		}
	})
}

// An Open that was to create nothing leaves nothing, so it is not uncertain what became of it: the error of one whose answer
// does not come is that of a read, and an answer that comes to a later attempt is the answer.
func TestOpenThatCreatesNothingIsNotUncertain(t *testing.T) {
	for name, test := range map[string]struct {
		create Creation
		later  verb // answers the attempts after the first; nil: none does
		want   api.Code
	}{
		"no answer":                          {Existing, nil, api.Unavailable},
		"no answer, and it may have made it": {File, nil, api.Uncertain},
		"deleted since":                      {Existing, fail(api.Errorf(api.HandleClosed, "the node was deleted")), api.NotFound},
		"refused later":                      {Existing, fail(api.Errorf(api.NotFound, "it is gone")), api.NotFound},
		"refused later, and it may have":     {File, fail(api.Errorf(api.QuotaExceeded, "too many handles")), api.Uncertain},
	} {
		runInSession(t, name, func(t *testing.T, f *fake, c *Client) {
			first := lockable(t, c, 0)
			handles := f.state().handles
			before := len(f.heard("Open"))
			f.script(func(s seen) verb {
				switch {
				case s.method != "Open":
					return nil
				case s.nth == before+3 && test.later != nil:
					return nil // the janitor asks for the handle, to close it
				case test.later != nil && s.nth > before+3:
					return fail(api.Errorf(api.NotFound, "there is no such node"))
				case test.later != nil && s.nth > before+1:
					return test.later
				}
				return lose
			})
			h, err := c.Open(bounded(t, 3*time.Second), "/ls/foo/x", OpenOptions{Write: true, Create: test.create, LockDelay: 1})
			if h != nil || api.CodeOf(err) != test.want {
				t.Errorf("%v, %v; want %v", h, err, test.want)
			}
			if test.later == nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v; want the end of the context", err)
			}
			f.script(nil)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if now := f.state().handles; now != handles {
				t.Errorf("%d handles are open at the cell, and %d were before", now, handles)
			}
			noError(t, first.Close(t.Context()))
		})
	}
}

// A mutation is sent with the same number until it has a definite answer, and
// so happens once, whatever comes between.
func TestSameNumberUntilAnswered(t *testing.T) {
	for _, script := range []struct {
		name  string
		steps []verb
	}{
		{"at once", nil},
		{"not the master", []verb{fail(&api.Error{Code: api.NotMaster, Master: "b:1"}), fail(&api.Error{Code: api.NotMaster})}},
		{"cannot serve yet", []verb{fail(api.Unavailable), fail(api.Unavailable), fail(api.Unavailable)}},
		{"done, and the answer lost", []verb{lose, lose}},
		{"done, and then silence", []verb{mute, hang}},
		{"for an earlier epoch", []verb{fail(api.StaleEpoch)}},
		{"everything", []verb{hang, fail(api.Unavailable), mute, fail(&api.Error{Code: api.NotMaster, Master: "c:1"}), lose, fail(api.StaleEpoch)}},
	} {
		runInSession(t, script.name, func(t *testing.T, f *fake, c *Client) {
			h := lockable(t, c, 0)
			f.inTurn("SetContents", append(script.steps, nil)...)
			must(t, second(h.SetContents(t.Context(), []byte("one"))))
			calls := f.heard("SetContents")
			if len(calls) < len(script.steps)+1 {
				t.Errorf("%d attempts", len(calls))
			}
			for _, s := range calls {
				if s.number != calls[0].number {
					t.Errorf("an attempt with number %d, the first had %d", s.number, calls[0].number)
				}
			}
			if s := f.state(); s.writes != 1 || s.contents != "one" {
				t.Errorf("%d writes, contents %q", s.writes, s.contents)
			}
			settled(t, c)
		})
	}
}

// Definite refusals are not retried, and keep what they carry.
func TestRefusals(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.on("SetContents", fail(&api.Error{Code: api.GenerationMismatch, Current: 41, Replica: "a", Message: "too late"}))
		_, err := h.SetContents(t.Context(), nil, IfGeneration(40))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.GenerationMismatch || e.Current != 41 || e.Replica != "a" || e.Op != "write" || e.Path != "/ls/foo/x" {
			t.Errorf("%+v", e)
		}
		calls := f.heard("SetContents")
		if len(calls) != 1 || calls[0].request.(*chubbypb.SetContentsRequest).GetIfGeneration() != 40 {
			t.Errorf("%d attempts, %v", len(calls), calls)
		}
	})
}

// A call that never reached anybody is not uncertain: nothing was done.
func TestNothingSent(t *testing.T) {
	inSession(t, func(t *testing.T, f *fake, c *Client) {
		h := lockable(t, c, 0)
		f.cut(addresses()...)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := h.SetContents(ctx, nil); !errors.Is(err, api.Cancelled) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		f.heal()
		if _, err := h.SetContents(t.Context(), nil); err != nil || len(f.heard("Cancel")) != 0 || f.state().writes != 1 {
			t.Errorf("%v, %d cancels, %d writes", err, len(f.heard("Cancel")), f.state().writes)
		}
	})
}

// A directory that is deleted while those below it are made is made again, and not for ever.
func TestMkdirAllIsBounded(t *testing.T) {
	for _, deletions := range []int{0, 3, 1000} {
		inSession(t, func(t *testing.T, f *fake, c *Client) {
			missing, above := true, 0
			f.script(func(s seen) verb {
				if s.method != "Open" {
					return nil
				}
				if s.request.(*chubbypb.OpenRequest).GetPath() == "/ls/foo/a" {
					above++
					missing = above <= deletions
					return nil
				}
				if missing {
					return fail(api.Errorf(api.NotFound, "there is no directory /a"))
				}
				return nil
			})
			err := c.MkdirAll(t.Context(), "/ls/foo/a/b")
			if gaveUp := deletions > maxReopen; gaveUp != errors.Is(err, api.NotFound) || !gaveUp && err != nil || above > maxReopen {
				t.Errorf("after %d deletions: %v, and the directory above was made %d times", deletions, err, above)
			}
		})
	}
}

// A directory in which others create files while it is emptied is emptied again, and not for ever.
func TestRemoveAllIsBounded(t *testing.T) {
	for _, creations := range []int{0, 3, 1000} {
		inSession(t, func(t *testing.T, f *fake, c *Client) {
			deletes := 0
			f.script(func(s seen) verb {
				switch s.method {
				case "ReadDir":
					return answering(&chubbypb.ReadDirReply{})
				case "Delete":
					if deletes++; deletes <= creations {
						return fail(api.Errorf(api.NotEmpty, "there is a child"))
					}
				}
				return nil
			})
			err := c.RemoveAll(t.Context(), "/ls/foo/a")
			if gaveUp := creations > maxReopen; gaveUp != errors.Is(err, api.NotEmpty) || !gaveUp && err != nil || deletes > maxReopen+1 {
				t.Errorf("after %d creations: %v, %d deletes", creations, err, deletes)
			}
		})
	}
}

// A node that is deleted between the Open and the call is opened again, and not for ever.
func TestDeletedAfterTheOpen(t *testing.T) {
	for _, deletions := range []int{0, 3, 1000} {
		inSession(t, func(t *testing.T, f *fake, c *Client) {
			reads := 0
			f.script(func(s seen) verb {
				if s.method != "GetContentsAndStat" {
					return nil
				}
				if reads++; reads <= deletions {
					return fail(api.Errorf(api.HandleClosed, "the node was deleted"))
				}
				return answering(&chubbypb.GetContentsAndStatReply{Contents: []byte("new"), Stat: f.stat()})
			})
			text, _, err := c.Get(t.Context(), "/ls/foo/a")
			if gaveUp := deletions >= maxReopen; gaveUp != errors.Is(err, api.HandleClosed) || !gaveUp && string(text) != "new" || reads > maxReopen {
				t.Errorf("after %d deletions: %q %v, %d reads", deletions, text, err, reads)
			}
		})
	}
}
