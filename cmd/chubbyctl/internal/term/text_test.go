package term

import (
	"strings"
	"testing"
	"time"
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

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 1500 * time.Millisecond: "1.5s", 3*time.Minute + 12*time.Second: "3m12s", 50 * time.Hour: "2d2h",
	} {
		if got := Roughly(d); got != want {
			t.Errorf("Roughly(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "7B": 7, "512KiB": 512 << 10, "10MiB": 10 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40, "9223372036854775807": 1<<63 - 1,
	} {
		var s Size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s is %d, %v; want %d", text, s, err, want)
		}
		var again Size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s is written %s, which is %d, %v", text, &s, again, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "+1", "1.5GiB", "10MB", "10 MiB", "10mib", "1K", "9223372036854775808", "8388608TiB", "0x10"} {
		var s Size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is taken for %d bytes", text, s)
		}
	}
}

// A size is rounded down, so that what is used never looks like what is allowed.
func TestRoughSizes(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1<<20 - 1: "1023.9KiB", 1<<30 - 1: "1023.9MiB", 3 << 29: "1.5GiB", 1<<63 - 1: "8388607.9TiB",
	} {
		if got := RoughSize(bytes); got != want {
			t.Errorf("%d bytes: %s, want %s", bytes, got, want)
		}
	}
}
