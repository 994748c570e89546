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

// The log has no line for a session that its client closes. For one that ends
// otherwise, the log says whose it was.
func TestLogOfEndedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		log := &logged{}
		c := celltest.Start(t, 1, func(cfg *cell.Config) { cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		closed := dial(t, ctx, c, "closed", client.Config{As: "alice"})
		expired := dial(t, ctx, c, "expired", client.Config{As: "bob"})
		if err := closed.Close(ctx); err != nil {
			t.Fatal(err)
		}
		c.Expire(expired.Session())
		synctest.Wait()
		text := log.String()
		if strings.Count(text, "session ended") != 1 || !strings.Contains(text, "reason=expired principal=bob host=") || !strings.Contains(text, " pid=") {
			t.Errorf("one session was closed and one has expired; the log says\n%s", text)
		}
	})
}
