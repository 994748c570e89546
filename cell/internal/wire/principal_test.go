package wire

import (
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// People have to see by what two principals differ: a name in a list, or in the log, is no other than it looks.
func TestPrincipalsCanBeSeen(t *testing.T) {
	for _, name := range []string{"ops.example.org", "spiffe://acme/billing", "system:serviceaccount:shop:cart", "Jürgen Müller", "世界", "O'Neill, \"Bob\"", "a\u0301", "👍"} {
		if err := CheckPrincipal(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for what, hidden := range map[string]string{
		"no width": "\u200b", "a joiner": "\u200d", "right to left": "\u202e", "an isolate": "\u2066", "a soft hyphen": "\u00ad", "a byte order mark": "\ufeff", "a tag": "\U000e0041",
		"a line separator": "\u2028", "a hard space": "\u00a0", "a wide space": "\u3000", "a filler": "\u3164", "a blank of Braille": "\u2800", "a variation": "\ufe0e", "for nobody's use": "\ue000",
		"a control": "\x01", "the end of a line": "\n", "another control": "\u009b",
	} {
		for _, name := range []string{"ops" + hidden + ".example.org", hidden + "ops", "ops" + hidden} {
			if err := CheckPrincipal(name); api.CodeOf(err) != api.InvalidArgument || !strings.Contains(err.Error(), "cannot be seen") || strings.Contains(err.Error(), hidden) {
				t.Errorf("%s, %q: %v", what, name, err)
			}
		}
	}
}
