package bootclock_test

import (
	"testing"

	"github.com/chubbylock/chubby/internal/bootclock"
)

func TestNow(t *testing.T) {
	if a, b := bootclock.Now(), bootclock.Now(); a <= 0 || b < a {
		t.Errorf("the clock went from %v to %v", a, b)
	}
}
