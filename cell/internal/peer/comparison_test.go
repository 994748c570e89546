package peer

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// TestComparisonSaysWhoDiffers: another replica can differ only at an index
// that this replica has applied. The log says so at once and then every minute,
// and the replica is counted until the two agree again.
func TestComparisonSaysWhoDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testbed.Lines{}
		c := NewComparison(func(index uint64) (uint64, bool) { return 100 + index, index <= 7 }, testbed.Clock(), slog.New(slog.NewTextHandler(log, nil)))
		c.Compare("r2", Report{Applied: 8}) // it is ahead
		c.Compare("r2", Report{Applied: 7, History: 107})
		if lines := log.Take(); len(lines) != 0 || len(c.Differing()) != 0 {
			t.Errorf("replicas that agree: %q, %d", lines, len(c.Differing()))
		}
		for range 30 {
			c.Compare("r3", Report{Applied: 7, History: 999})
			testbed.Pass(5 * time.Second)
		}
		lines := log.Take()
		if len(lines) != 3 || len(c.Differing()) != 1 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "peer=r3") {
			t.Errorf("a replica that differs for 150 s: %q, %d", lines, len(c.Differing()))
		}
		if !strings.Contains(strings.Join(lines, ""), "Remove no data directory") {
			t.Errorf("the advice is missing: %q", lines)
		}
		c.Compare("r3", Report{Applied: 7, History: 107})
		if len(c.Differing()) != 0 {
			t.Error("it is counted after it agreed")
		}
	})
}

// quietComparison is a comparison of a replica that has applied nothing.
func quietComparison() *Comparison {
	return NewComparison(func(uint64) (uint64, bool) { return 0, false }, testbed.Clock(), slog.New(slog.DiscardHandler))
}
