package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// A lock that cannot be watched is guarded by maxAge alone, and that is said
// once.
func TestCheckerWithoutEvents(t *testing.T) {
	for name, does := range map[string]verb{
		"Open": fail(api.Errorf(api.QuotaExceeded, "no room for a handle")),
		"GetStat": func(_ context.Context, next func() (any, error)) (any, error) {
			reply, err := next()
			if err == nil {
				reply.(*chubbypb.GetStatReply).Stat.Ephemeral = true
			}
			return reply, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fake) {
				var logged bytes.Buffer
				cfg := f.config()
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				c := f.client(cfg)
				f.give(101)
				f.script(func(s seen) verb {
					if s.method == name {
						return does
					}
					return nil
				})
				k := newChecker(t, c, time.Second)
				f.good(k, 101)
				synctest.Wait()
				f.good(k, 101)
				f.good(k, 101)
				f.asked(2)
				f.give(102)
				time.Sleep(time.Second)
				f.bad(k, 101)
				for range 35 {
					f.good(k, 102)
					time.Sleep(time.Second)
				}
				if tries := len(f.heard("Open")); tries != 4 || k.Stats().Watched != 0 || f.state().handles != 0 {
					t.Errorf("tried %d times in 35 s, %+v, %d handles", tries, k.Stats(), f.state().handles)
				}
				k.Close()
				closeClient(t, c)
				if said := strings.Count(logged.String(), "cannot be watched"); said != 1 {
					t.Errorf("said %d times:\n%s", said, &logged)
				}
			})
		})
	}
}

// However many locks there are, few are kept, and of these the handles are
// closed that are not needed any more.
func TestCheckerForgets(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		c := f.client(f.config())
		f.script(func(s seen) verb {
			if s.method == "CheckSequencer" {
				return func(context.Context, func() (any, error)) (any, error) {
					return &chubbypb.CheckSequencerReply{Valid: true}, nil
				}
			}
			return nil
		})
		k := newChecker(t, c, time.Second)
		k.maxLocks = 3
		ask := func(lock int) {
			s := checked(101)
			s.Path = api.MustParsePath(fmt.Sprintf("/ls/foo/%d", lock))
			for range 3 {
				if err := k.CheckSequencer(t.Context(), s); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
		}
		for lock := range 20 {
			ask(lock)
		}
		time.Sleep(time.Second)
		for lock := 17; lock < 20; lock++ { // there was no room to watch them before others were let go
			ask(lock)
		}
		if stats, open := k.Stats(), f.state().handles; stats.Locks != 3 || stats.Watched != 3 || open != 3 || k.recent.Len() != 3 || stats.Kept < 20 {
			t.Errorf("%+v, %d handles", stats, open)
		}
		k.Close()
		if open := f.state().handles; open != 0 || k.watchers != 0 || len(k.newest) != 0 {
			t.Errorf("%d handles are left, %d goroutines, %d questions", open, k.watchers, len(k.newest))
		}
		closeClient(t, c)
	})
}
