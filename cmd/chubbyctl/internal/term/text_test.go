package term

import (
	"strings"
	"testing"
)

// Nothing of a text is lost, and no line is wider than it may be.
func TestFold(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly ten", 11, "exactly ten"},
		{"exactly ten and more", 11, "exactly ten|and more"},
		{"the end matters too", 10, "the end|matters|too"},
		{"/ls/local/a/b/lock", 10, "/ls/local/|a/b/lock"},
		{"r1,r2,r3,r4", 6, "r1,r2,|r3,r4"},
		{"unbreakable", 4, "unbr|eaka|ble"},
		{"worker-7@payments.prod.example.com", 12, "worker-7@|payments.|prod.|example.com"},
		{"/ls/reconciliation-nightly", 16, "/ls/|reconciliation-|nightly"},
		{"https://web1.example.com:8443/health?v=1", 14, "https://|web1.example.|com:8443/|health?v=1"},
		{"a/bcdefghijklmnop", 8, "a/|bcdefghi|jklmnop"},
		{"日本語日本語", 5, "日本|語日|本語"},
		{"日本", 1, "日|本"},
		{"", 3, ""},
	} {
		got := fold(c.text, c.limit)
		if strings.Join(got, "|") != c.want {
			t.Errorf("fold(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

// The names and texts of others give no orders to a terminal.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ünïcode, 日本語":      "plain, ünïcode, 日本語",
		"\x1b[2Jcleared\a":         `\x1b[2Jcleared\a`,
		"two\nlines\tand\r":        `two\nlines\tand\r`,
		"right\u202eto left":       `right\u202eto left`,
		"\u009b31m in eight bits":  `\u009b31m in eight bits`,
		"no utf-8: \xff\xfe":       `no utf-8: \xff\xfe`,
		"a replacement \ufffd is":  "a replacement \ufffd is",
		"zero\u200bwidth, \u2028.": `zero\u200bwidth, \u2028.`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
	}
}
