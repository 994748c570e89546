package client

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// unknownKind is one that a newer master may send.
const unknownKind chubbypb.EventKind = 63

// An event of a kind that this version does not know may have been any: it is not
// acknowledged before every lock was asked about, and handles are told to look again.
func TestUnknownEventsHoldBack(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c, l := f.held(f.config())
		h := watching(t, c)
		f.script(func(s seen) verb {
			if s.method == "GetSequencer" {
				return after(2 * time.Second)
			}
			return nil
		})
		f.mu.Lock()
		f.holder.revoked = 99 // which is what the event says, for all that this version knows
		f.mu.Unlock()
		f.post(f.only(), unknownKind)
		time.Sleep(time.Second)
		synctest.Wait()
		if f.state().acked != 0 {
			t.Error("acknowledged before the lock was asked about")
		}
		if got := h.waiting(); !slices.Equal(got, []api.EventKind{api.EventLost}) {
			t.Errorf("a handle was told %v", got)
		}
		time.Sleep(2 * time.Second)
		if l.Err() == nil || f.state().acked != 0 {
			t.Errorf("the lock says %v, acknowledged %d", l.Err(), f.state().acked)
		}
		_ = l.Release(t.Context())
		time.Sleep(time.Second)
		if f.state().acked != 1 {
			t.Errorf("acknowledged %d in the end", f.state().acked)
		}
		closeClient(t, c)
	})
}

// Each kind of the vocabulary is dealt with: none is taken for one of a newer master.
func TestEveryEventKindIsKnown(t *testing.T) {
	for _, kind := range append(api.EventKinds(), api.EventKind(unknownKind)) {
		inBubble(t, func(t *testing.T, f *fake) {
			var log strings.Builder
			cfg := f.config()
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c := f.client(cfg)
			f.post(f.only(), chubbypb.EventKind(kind))
			time.Sleep(time.Second)
			closeClient(t, c) // after that nothing is logged any more
			if unknown := strings.Contains(log.String(), "unknown kind"); unknown == kind.Known() {
				t.Errorf("%v: %s", kind, log.String())
			}
		})
	}
}
