package term

import (
	"testing"
	"time"
)

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 1500 * time.Millisecond: "1.5s", 3*time.Minute + 12*time.Second: "3m12s", 50 * time.Hour: "2d2h",
	} {
		if got := Roughly(d); got != want {
			t.Errorf("Roughly(%v) = %s, want %s", d, got, want)
		}
	}
}
