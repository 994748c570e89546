package bootclock_test

import (
	"testing"
	"time"

	"github.com/chubbylock/chubby/internal/bootclock"
)

func TestNow(t *testing.T) {
	if a, b := bootclock.Now(), bootclock.Now(); a <= 0 || b < a {
		t.Errorf("the clock went from %v to %v", a, b)
	}
}

// BenchmarkClocks is why what is read for each frame is not read by the clock of leases.
func BenchmarkClocks(b *testing.B) {
	b.Run("leases", func(b *testing.B) {
		for b.Loop() {
			bootclock.Now()
		}
	})
	b.Run("monotonic", func(b *testing.B) {
		began := time.Now()
		for b.Loop() {
			_ = time.Since(began)
		}
	})
}
