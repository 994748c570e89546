package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// outage is longer than any session survives.
const outage = 5 * time.Minute

// followed is a cell, an author who changes it, and a chubbyctl on the host "reader" that follows something, and is cut off at times.
type followed struct {
	*testing.T
	cell   *celltest.Cell
	author *client.Client
	g      *globals
	said   bytes.Buffer
}

func withFollowed(t *testing.T, f func(f *followed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &followed{T: t, cell: celltest.Start(t, 1)}
		s.author = s.cell.Client("author", func(c *client.Config) { c.NoCache = true })
		s.g = &globals{output: "json", timeout: 15 * time.Second, adapt: func(cfg *client.Config) {
			cfg.Servers, cfg.Dialer, cfg.Clock = s.cell.Servers(), s.cell.DialFrom("reader"), s.cell.ClockOf("reader")
		}}
		s.g.stderr = term.NewSpeaker(&s.said)
		f(s)
	})
}

// away cuts the reader off until its session has ended, and meanwhile has something happen.
func (s *followed) away(meanwhile func()) {
	s.cell.Cut("reader")
	time.Sleep(outage)
	meanwhile()
	s.cell.Heal("reader")
	s.pass(time.Minute)
}

// pass lets time pass, and then all that is due happen.
func (s *followed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *followed) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *followed) put(path, text string) {
	s.Helper()
	_, err := s.author.Put(s.Context(), path, []byte(text))
	s.ok(err)
}

// begin runs a command until it is ended.
func (s *followed) begin(run func(context.Context) error) (end func() error) {
	ctx, interrupt := context.WithCancelCause(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	time.Sleep(time.Second)
	return func() error {
		interrupt(interrupted{})
		return <-ended
	}
}

// watch is a watch, and what came of it.
type watch struct {
	*watchOptions
	printed bytes.Buffer
	runs    []string // what CMD ran for, as note says
	note    func(happening) string
	first   time.Duration // how long the first run of CMD takes
}

// watch returns a watch that has yet to begin.
func (s *followed) watch(kinds []api.EventKind, paths ...string) *watch {
	w := &watch{note: func(h happening) string { return h.fields.Event }}
	w.watchOptions = watching(&w.printed)
	w.globals, w.exec, w.kinds = s.g, "a test", kinds
	for _, p := range paths {
		w.paths = append(w.paths, api.MustParsePath(p))
	}
	w.run = func(_ context.Context, due []happening) error {
		begins := len(w.runs) == 0
		for _, one := range due {
			w.runs = append(w.runs, w.note(one))
		}
		if begins {
			<-time.After(w.first)
		}
		return nil
	}
	return w
}

// noteContents notes which contents of which file CMD has.
func noteContents(h happening) string {
	return strings.TrimPrefix(h.Path, "/ls/local/") + "=" + *h.fields.Contents
}

// permit changes who may do anything at a node.
func (s *followed) permit(path, list string) {
	s.Helper()
	h, err := s.author.Open(s.Context(), path, client.OpenOptions{ChangeACL: true})
	s.ok(err)
	_, err = h.SetACL(s.Context(), api.ACL{Read: list, Write: list, Change: list})
	s.ok(err)
	s.ok(h.Close(s.Context()))
}

// readers has the lists authors and all, without and with the reader, who says then who he is.
func (s *followed) readers() {
	s.put("/ls/local/acl/authors", "author\n")
	s.put("/ls/local/acl/all", "author\nreader\n")
	adapt := s.g.adapt
	s.g.adapt = func(cfg *client.Config) { adapt(cfg); cfg.As = "reader" }
}

// What follows something goes on in the next session, however often one ends, and is told why it did. It ends with its own last word, when
// it cannot begin again, and at an interrupt.
func TestFollowingGoesOn(t *testing.T) {
	for what, c := range map[string]struct {
		sessions int   // after which it ends
		last     error // by a final, or
		again    error // of begin in the last session, or by an interrupt
	}{
		"a final":           {3, errNoMore, nil},
		"a final of nil":    {2, nil, nil},
		"cannot begin":      {3, nil, api.Errorf(api.PermissionDenied, "not any more")},
		"an interrupt":      {0, nil, nil},
		"at once":           {1, errNoMore, nil},
		"cannot begin ever": {1, nil, api.Errorf(api.NotFound, "no such file")},
	} {
		t.Run(what, func(t *testing.T) {
			withFollowed(t, func(s *followed) {
				var gaps []error
				begun := 0
				f := &follower{
					begin: func(context.Context, *client.Client) error {
						if begun++; begun == c.sessions {
							return c.again
						}
						return nil
					},
					follow: func(ctx context.Context, c1 *client.Client, gap error) error {
						gaps = append(gaps, gap)
						if len(gaps) == c.sessions {
							return final{c.last}
						}
						if len(gaps) < 4 {
							go func() {
								time.Sleep(time.Second)
								s.cell.Expire(c1.Session())
							}()
						}
						<-ctx.Done()
						return errors.New("whatever it says of that")
					},
				}
				end := s.begin(func(ctx context.Context) error { return s.g.withFollowing(ctx, api.MustParsePath("/ls/local/a"), f) })
				time.Sleep(5 * time.Minute)
				err := end()
				if want := cmp.Or(c.last, c.again); !errors.Is(err, want) {
					t.Errorf("it ended with %v", err)
				}
				for i, gap := range gaps {
					if (gap == nil) != (i == 0) || gap != nil && !errors.Is(gap, api.SessionExpired) {
						t.Errorf("gap %d: %v", i, gap)
					}
				}
				if c.sessions == 0 && len(gaps) != 4 {
					t.Errorf("%d sessions", len(gaps))
				}
			})
		})
	}
}

// elect --observe and members ls --watch tell after an outage what has become of what they had told, and nothing twice.
func TestObserversGoOn(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.put("/ls/local/p", "one")
		h, err := s.author.Open(s.Context(), "/ls/local/p", client.OpenOptions{Write: true})
		s.ok(err)
		lock, err := h.Acquire(s.Context(), api.Exclusive)
		s.ok(err)
		_, err = h.SetContents(s.Context(), []byte("one"))
		s.ok(err)
		one, err := recipe.Announce(s.Context(), s.author, "/ls/local/up", "one", nil)
		s.ok(err)
		var reigns, changes bytes.Buffer
		elect := &electOptions{workOptions: workOptions{globals: s.g, path: api.MustParsePath("/ls/local/p"), out: &reigns, err: s.g.stderr}}
		endObserve := s.begin(elect.followElection)
		endMembers := s.begin(func(ctx context.Context) error {
			return watchMembers(ctx, s.g, api.MustParsePath("/ls/local/up"), &changes)
		})
		s.away(func() {})
		if n := strings.Count(reigns.String(), "\n"); n != 1 {
			t.Errorf("one primary is told %d times:\n%s", n, &reigns)
		}
		if n := strings.Count(changes.String(), "\n"); n != 1 {
			t.Errorf("one member is told %d times:\n%s", n, &changes)
		}
		if n := strings.Count(s.said.String(), "the session ended"); n != 2 {
			t.Errorf("two sessions have ended, and %d lines say so: %s", n, &s.said)
		}
		s.away(func() {
			s.ok(lock.Release(s.Context()))
			lock, err = h.Acquire(s.Context(), api.Exclusive)
			s.ok(err)
			_, err = h.SetContents(s.Context(), []byte("two"))
			s.ok(err)
			s.ok(one.Withdraw(s.Context()))
			one, err = recipe.Announce(s.Context(), s.author, "/ls/local/up", "two", nil)
			s.ok(err)
		})
		if text := reigns.String(); !strings.Contains(text, `"value":"two"`) {
			t.Errorf("the next primary is not told:\n%s", text)
		}
		if text := changes.String(); !strings.Contains(text, `"change":"left","name":"one"`) || !strings.Contains(text, `"change":"joined","name":"two"`) {
			t.Errorf("what has become of the members is not told:\n%s", text)
		}
		s.ok(endObserve())
		s.ok(endMembers())
		s.ok(lock.Release(s.Context()))
		s.ok(one.Withdraw(s.Context()))
	})
}
