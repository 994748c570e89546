package term

import "testing"

func TestShortened(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly ten", 11, "exactly ten"},
		{"the beginning matters", 10, "the begin…"},
		{"/ls/local/a/b/lock", 10, "…/a/b/lock"},
		{"日本語日本語", 6, "日本…"},
	} {
		if got := shortened(c.text, c.limit); got != c.want || columns(got) > c.limit {
			t.Errorf("shortened(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
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
