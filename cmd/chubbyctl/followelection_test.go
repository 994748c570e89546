package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// A primary whose file is empty, such as one by acquire, has not said who it is.
func TestReignWithoutAValue(t *testing.T) {
	for value, want := range map[string]string{"": "(has not said who it is)", "\n": "(has not said who it is)", "db1\n": "primary: db1  token 7"} {
		var out bytes.Buffer
		o := &electOptions{workOptions: workOptions{globals: &globals{output: "text"}, out: &out}}
		if err := o.printPrimary(recipe.Reign{Token: 7, Value: []byte(value)}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("of value %q: %q, %v; want %q", value, out.String(), err, want)
		}
	}
}

// Programs get a value that is not UTF-8 exactly, from --observe and from --candidates.
func TestValueThatIsNoText(t *testing.T) {
	value := []byte{0xff, 'a'}
	var out bytes.Buffer
	o := &electOptions{workOptions: workOptions{globals: &globals{output: "json"}, out: &out}}
	if err := o.printPrimary(recipe.Reign{Token: 7, Value: value}); err != nil {
		t.Fatal(err)
	}
	if err := term.JSON.Print(&out, newCandidateFields(recipe.Candidate{Member: recipe.Member{Value: value}})); err != nil {
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
