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

// The condition goes to the log with the creation: the token of the directory in the Open is bound to the sequencer, and the
// handle of the directory is as it was.
func TestOpenIfSequencerBindsTheOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		seq := l.Sequencer()
		dir, err := c.Open(t.Context(), "/ls/foo/dir", OpenOptions{Write: true, Create: Directory})
		if err != nil {
			t.Fatal(err)
		}
		before := len(f.heard("Open"))
		if _, err := dir.Open(t.Context(), "below", OpenOptions{Write: true, Create: NewFile, Ephemeral: true, IfSequencer: &seq}); err != nil {
			t.Fatal(err)
		}
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
		closeClient(t, c)
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
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				c := f.client(f.config())
				first, err := c.Open(t.Context(), "/ls/foo/x", OpenOptions{Write: true, Create: File})
				if err != nil {
					t.Fatal(err)
				}
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
					return func(_ context.Context, next func() (any, error)) (any, error) {
						_, _ = next() // done, and the answer is lost
						return nil, chubbypb.Status(api.Errorf(api.Uncertain, "the answer was lost"))
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				h, err := c.Open(ctx, "/ls/foo/x", OpenOptions{Write: true, Create: test.create, LockDelay: 1})
				if h != nil || api.CodeOf(err) != test.want {
					t.Errorf("%v, %v; want %v", h, err, test.want)
				}
				if test.later == nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v; want the end of the context", err)
				}
				f.script(func(seen) verb { return nil })
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if now := f.state().handles; now != handles {
					t.Errorf("%d handles are open at the cell, and %d were before", now, handles)
				}
				if err := first.Close(t.Context()); err != nil {
					t.Error(err)
				}
				closeClient(t, c)
			})
		})
	}
}
