package cell

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// A normal start logs no warning. A replica that cannot reach the others says
// so once a minute, with their ids, however often Raft does.
func TestLogOfALoneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := map[string]*testbed.Lines{"r1": {}, "r2": {}, "r3": {}}
		replicas := startCell(t, 3, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(logs[cfg.ID], nil)) })
		testbed.Pass(time.Minute)
		for id, log := range logs {
			for _, line := range log.Take() {
				if !strings.Contains(line, "level=INFO") {
					t.Errorf("a normal start: %s logs %s", id, line)
				}
			}
		}
		for _, id := range []string{"r2", "r3"} {
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			_ = replicas[id].Stop(gone) // the error says that it did not drain, as intended
			<-replicas[id].Done()
		}
		testbed.Pass(10 * time.Second)
		logs["r1"].Take() // the lines about the end of its epoch, if it was the master
		const minutes = 10
		testbed.Pass(minutes * time.Minute)
		lines := logs["r1"].Take()
		if len(lines) < minutes-1 || len(lines) > minutes+1 {
			t.Errorf("in %d minutes alone r1 logged %d lines:\n%s", minutes, len(lines), strings.Join(lines, ""))
		}
		for _, line := range lines {
			if !strings.Contains(line, `level=WARN msg="replicas cannot be reached" replica=r1 event=peers_away peers="[r2 r3]"`) {
				t.Errorf("alone it logged %s", line)
			}
		}
	})
}
