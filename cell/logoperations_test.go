package cell_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

// Each step of a change of the replicas is in the log once, with whom it is about, whichever replica takes it.
func TestLogOfMembers(t *testing.T) {
	inLoggedCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		leaving := others(3, c.Master())[0]
		gone := c.Replica(leaving)
		replace(t, ctx, c, operator, leaving, "r4")
		<-gone.Done()
		c.Kill(leaving)
		time.Sleep(time.Minute) // virtual
		log.has(t, "members_change", logLine{"added": "r4", "removed": leaving})
		log.has(t, "member_joins", logLine{"member": "r4", "address": "r4:7431"})
		log.has(t, "member_votes", logLine{"member": "r4"})
		log.has(t, "member_leaves", logLine{"member": leaving})
		log.has(t, "member_settled", logLine{"member": "r4", "phase": "joining"}, logLine{"member": leaving, "phase": "leaving"})
		log.has(t, "member_admitted", logLine{"replica": "r4", "cell": "local"})
		log.has(t, "cell_began", logLine{"replica": "r1", "members": 3.0, "cell": "local"}, logLine{"replica": "r2", "members": 3.0}, logLine{"replica": "r3", "members": 3.0})
		log.has(t, "member_replaced")
		log.has(t, "spare_missing")
		log.has(t, "replica_failed", logLine{"replica": leaving}) // it ends by itself
		log.has(t, "replica_stopped")                             // and was not asked to
	}, calm)
}

// A replica that is stopped while it starts says so once, as one that is stopped later.
func TestLogOfAStartThatIsGivenUp(t *testing.T) {
	inLoggedCell(t, 1, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		starting, stop := context.WithCancel(ctx)
		joined := joins(starting, c, "r2")
		time.Sleep(10 * time.Second) // virtual
		stop()
		err := <-joined
		stopIf(t, err == nil, "it was started")
		log.has(t, "replica_stopped", logLine{"replica": "r2"})
		if why := log.events(t, "event", "replica_stopped")[0].text("error"); why == "" || !strings.HasSuffix(err.Error(), why) {
			t.Errorf("the log says that %q, and the error is %v", why, err)
		}
	})
}

// A spare that takes the place of a dead replica does so once in the log. That none can is said once, and again after a while, however long
// it lasts.
func TestLogOfSpares(t *testing.T) {
	const long = time.Minute
	inLoggedCell(t, 3, func(t *testing.T, ctx context.Context, c *celltest.Cell, log *logged) {
		operator := dial(t, ctx, c, "operator", client.Config{NoCache: true})
		joined := standsBy(t, ctx, c, operator, "r4")
		dead := others(3, c.Master())[0]
		c.Cut("r4")
		c.Kill(dead)
		time.Sleep(3 * time.Minute) // virtual
		missing := log.events(t, "event", "spare_missing")
		if len(missing) == 0 || len(missing) > 2 || missing[0].text("error") == "" { // two, if the spare cannot be reached for two reasons
			t.Errorf("in two minutes without a spare the log says %d times that there is none: %v", len(missing), missing)
		}
		c.Heal("r4")
		noErr(t, <-joined)
		time.Sleep(time.Minute) // virtual
		log.has(t, "member_replaced", logLine{"member": dead, "spare": "r4"})
		if waited, _ := log.events(t, "event", "member_replaced")[0]["waited"].(float64); time.Duration(waited) < long {
			t.Errorf("it waited for %v, want %v", time.Duration(waited), long)
		}
		log.has(t, "members_change", logLine{"added": "r4"})
		log.has(t, "member_joins", logLine{"member": "r4", "address": "r4:7431"})
		log.has(t, "member_votes", logLine{"member": "r4"})
		log.has(t, "member_leaves", logLine{"member": dead})
		log.has(t, "member_settled", logLine{"member": "r4", "phase": "spare"}, logLine{"member": "r4", "phase": "joining"}, logLine{"member": dead, "phase": "leaving"})
	}, calm, func(cfg *cell.Config) { cfg.ReplaceAfter = long })
}

// logged is what a replica has logged.
type logged struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The log has no line for a session that its client closes. For one that ends otherwise, the log says whose it was.
func TestLogOfEndedSessions(t *testing.T) {
	inBubble(t, 30*time.Minute, func(t *testing.T, ctx context.Context) {
		log := &logged{}
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		closed := dial(t, ctx, c, "closed", client.Config{As: "alice"})
		expired := dial(t, ctx, c, "expired", client.Config{As: "bob"})
		noErr(t, closed.Close(ctx))
		c.Expire(expired.Session())
		synctest.Wait()
		text := log.String()
		if strings.Count(text, "session ended") != 1 || !strings.Contains(text, "reason=expired principal=bob host=") || !strings.Contains(text, " pid=") {
			t.Errorf("one session was closed and one has expired; the log says\n%s", text)
		}
	})
}
