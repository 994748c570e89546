package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/client/recipe"
)

// A primary whose file says nothing, as one by acquire, has not said who it is.
func TestReignWithoutAValue(t *testing.T) {
	for value, want := range map[string]string{"": "(has not said who it is)", "\n": "(has not said who it is)", "db1\n": "primary: db1  token 7"} {
		var out bytes.Buffer
		o := &electOptions{workOptions: workOptions{globals: &globals{output: "text"}, out: &out}}
		if err := o.printReign(recipe.Reign{Token: 7, Value: []byte(value)}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("of value %q: %q, %v; want %q", value, out.String(), err, want)
		}
	}
}
