package term

import "testing"

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
