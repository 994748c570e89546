package main

import (
	"bytes"
	"strings"
	"testing"

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
