package misuse_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/misuse"
)

// limitsText is what docs/misuse.md says of limits.
func limitsText(l misuse.Limits) string {
	if l.Under > 0 {
		return fmt.Sprintf("a lease below %.0f s", l.Under.Seconds())
	}
	text := fmt.Sprint(l.Count)
	if l.PerSecond > 0 {
		text += fmt.Sprintf(", and %v a second", l.PerSecond)
	}
	if l.Share > 0 {
		text += fmt.Sprintf(", and %.0f %% of all", 100*l.Share)
	}
	return text
}

// Each misuse has a number and a name that no other has; the name reads back; it says what it is, why it harms and what to do
// instead; and docs/misuse.md has its limits, and a section.
func TestMisuses(t *testing.T) {
	page, err := os.ReadFile("../docs/misuse.md")
	if err != nil {
		t.Fatal(err)
	}
	numbers, names := map[misuse.Kind]bool{}, map[string]bool{}
	for _, m := range misuse.Kinds() {
		if numbers[m] || names[m.String()] || m == 0 {
			t.Errorf("%v (%d) is there twice", m, m)
		}
		numbers[m], names[m.String()] = true, true
		var back misuse.Kind
		if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m || !m.Known() {
			t.Errorf("%v reads back as %v, %v", m, back, err)
		}
		if m.What() == "" || m.Why() == "" || m.Instead() == "" {
			t.Errorf("%v does not say what, why and what instead", m)
		}
		for _, want := range []string{fmt.Sprintf("\n| [%v](#%v) | %s |", m, m, limitsText(m.Limits())), fmt.Sprintf("\n## %v\n", m)} {
			if !strings.Contains(string(page), want) {
				t.Errorf("docs/misuse.md does not have %q", want)
			}
		}
	}
	for n := range 256 {
		if m := misuse.Kind(n); m.Known() != numbers[m] {
			t.Errorf("%v is known: %t", m, m.Known())
		}
	}
	if unknown := misuse.Kind(200); unknown.String() != "misuse 200" || unknown.What() != "" || new(misuse.Kind).UnmarshalText([]byte("misuse 200")) == nil {
		t.Errorf("one that there is none of: %v", unknown)
	}
}
