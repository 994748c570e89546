package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// A primary whose file is empty, such as one by acquire, has not said who it is.
func TestReignWithoutAValue(t *testing.T) {
	for value, want := range map[string]string{"": "(has not said who it is)", "\n": "(has not said who it is)", "db1\n": "primary: db1  token 7"} {
		var out bytes.Buffer
		o := &electOptions{workOptions: workOptions{globals: &globals{output: "text"}, out: &out}}
		if err := o.printReign(recipe.Reign{Token: 7, Value: []byte(value)}, ""); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("of value %q: %q, %v; want %q", value, out.String(), err, want)
		}
	}
}

// Programs get a value that is not UTF-8 exactly, from --observe and from --candidates.
func TestValueThatIsNoText(t *testing.T) {
	value := []byte{0xff, 'a'}
	var out bytes.Buffer
	o := &electOptions{workOptions: workOptions{globals: &globals{output: "json"}, out: &out}}
	if err := o.printReign(recipe.Reign{Token: 7, Value: value}, ""); err != nil {
		t.Fatal(err)
	}
	if err := term.JSON.Print(&out, candidateFields(recipe.Candidate{Member: recipe.Member{Value: value}})); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), `"value":"","value_base64":"/2E="`); n != 2 {
		t.Errorf("%d of 2 show it:\n%s", n, out.String())
	}
}

// That a primary has written its value is told by -o json, once, though it is the value that was there: a program knows then that it is
// not of the primary before.
func TestObserveTellsWhatIsSure(t *testing.T) {
	for form, want := range map[term.Format][]bool{term.JSON: {false, true}, "text": {false}} {
		withFollowed(t, func(s *followed) {
			s.put("/ls/local/p", "one")
			h, err := s.author.Open(s.Context(), "/ls/local/p", client.OpenOptions{Write: true})
			s.ok(err)
			lock, err := h.Acquire(s.Context(), api.Exclusive)
			s.ok(err)
			var out bytes.Buffer
			s.g.output = form
			o := &electOptions{workOptions: workOptions{globals: s.g, path: api.MustParsePath("/ls/local/p"), out: &out, err: s.g.stderr}}
			end := s.begin(o.followElection)
			for range 2 {
				_, err = h.SetContents(s.Context(), []byte("one"))
				s.ok(err)
				s.pass(time.Second)
			}
			s.away(func() {})
			s.ok(end())
			var sure []bool
			for line := range strings.Lines(out.String()) {
				sure = append(sure, strings.Contains(line, `"sure":true`))
			}
			if !slices.Equal(sure, want) {
				t.Errorf("%v: sure %v, want %v:\n%s", form, sure, want, &out)
			}
			s.ok(lock.Release(s.Context()))
		})
	}
}

// A user whose lock could not be released is told that; others are not.
func TestLockThatIsNotReleased(t *testing.T) {
	for what, trouble := range map[string]struct {
		make func(c *celltest.Cell, session *client.Client)
		told bool
	}{
		"none":         {func(*celltest.Cell, *client.Client) {}, false},
		"cut off":      {func(c *celltest.Cell, _ *client.Client) { c.Cut("web1") }, true},
		"session ends": {func(c *celltest.Cell, session *client.Client) { c.Expire(session.Session()) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := celltest.Start(t, 1)
			session := c.Client("web1")
			h, err := session.Open(t.Context(), "/ls/local/nightly", client.OpenOptions{Write: true, Create: client.File})
			if err != nil {
				t.Fatal(err)
			}
			lock, err := h.Acquire(t.Context(), api.Exclusive)
			if err != nil {
				t.Fatal(err)
			}
			trouble.make(c, session)
			var told buffer
			o := &workOptions{globals: &globals{output: "text", timeout: 3 * time.Second}, err: &told}
			o.giveUpLock(t.Context(), session, holding(lock, lock.Release))
			if got := strings.Contains(told.String(), "may not be released yet"); got != trouble.told {
				t.Errorf("%s: told %q", what, told.String())
			}
		})
	}
}

// A lock that was released is reported as released, although a client that caches the list of candidates
// does not answer.
func TestCandidateThatCannotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		primary, reader := c.Client("web1"), c.Client("web2")
		var told buffer
		o := &electOptions{value: "web1", workOptions: workOptions{
			globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told, path: api.MustParsePath("/ls/local/primary"), waitLimit: waitLimit{begun: stopwatch()},
		}}
		held, err := o.campaign(t.Context(), t.Context(), primary)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // until its registration says that it is the primary
		h, err := reader.Open(t.Context(), "/ls/local/primary.candidates", client.OpenOptions{Read: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReadDir(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Cut("web2")
		began := time.Now()
		o.giveUpLock(t.Context(), primary, held)
		if took := time.Since(began); took > term.Patience || told.String() != "" {
			t.Errorf("after %v it was told %q", took, told.String())
		}
		again, err := primary.Open(t.Context(), "/ls/local/primary", client.OpenOptions{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.TryAcquire(t.Context(), api.Exclusive); err != nil {
			t.Errorf("the lock: %v", err)
		}
	})
}

// A candidate that another goes before is not told that the cell does not answer.
func TestCandidateThatIsOutranked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		var told [3]buffer
		for i := range told {
			session := c.Client("web1")
			o := &electOptions{value: "web", priority: 3 - i, workOptions: workOptions{
				globals: &globals{output: "text", timeout: 15 * time.Second}, err: &told[i], path: api.MustParsePath("/ls/local/primary"), waitLimit: waitLimit{begun: stopwatch()},
			}}
			waiting.Go(func() {
				_, _ = o.campaign(ctx, ctx, session)
				<-ctx.Done()
			})
			time.Sleep(5 * time.Second)
		}
		if text := told[1].String(); !strings.Contains(text, "place 1 of 1") {
			t.Errorf("the next one is told %q", text)
		}
		if text := told[2].String(); !strings.Contains(text, "another candidate goes first") || strings.Contains(text, "yet") {
			t.Errorf("who is outranked is told %q", text)
		}
	})
}
