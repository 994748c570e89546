package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Of large requests only some are under way at a time, also of several sessions. Small
// ones, KeepAlives among them, do not wait for them. The time of those that wait has not
// begun: who gives up has sent nothing, and the master is not asked again for its silence.
func TestLargeRequestsArePaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cell, clients, handles, _ := f.crowd(2)
		const slow = defaultCallTimeout - time.Second
		large, most := 0, 0
		var mu sync.Mutex // guards large and most
		f.script(func(s seen) verb {
			if s.method != "SetContents" && s.method != "Open" || len(contentsOf(s)) < api.MaxContents {
				return nil
			}
			return func(_ context.Context, next func() (any, error)) (any, error) {
				mu.Lock()
				large++
				most = max(most, large)
				mu.Unlock()
				time.Sleep(slow)
				mu.Lock()
				large--
				mu.Unlock()
				return next()
			}
		})
		contents := make([]byte, api.MaxContents)
		var work sync.WaitGroup
		for i := range maxLargeChanges {
			for j, c := range clients {
				work.Go(func() {
					var err error
					if i == 0 {
						_, err = c.Open(t.Context(), fmt.Sprintf("/ls/foo/y%d", j), OpenOptions{Write: true, Create: File, Contents: contents})
					} else {
						_, err = handles[j].SetContents(t.Context(), contents)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(time.Second)
		began := time.Now()
		if _, err := handles[0].SetContents(t.Context(), []byte("small")); err != nil || time.Since(began) > time.Second {
			t.Errorf("a small request meanwhile: %v, after %v", err, time.Since(began))
		}
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := handles[0].SetContents(within, contents); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, api.Uncertain) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Errorf("one that gave up: %v", err)
		}
		work.Wait()
		if sent := len(f.heard("SetContents")) + len(f.heard("Open")); most != maxLargeChanges || sent != 2*maxLargeChanges+1+len(clients) {
			t.Errorf("%d requests were sent, and %d large ones were under way at a time", sent, most)
		}
		synctest.Wait()
		for _, c := range clients {
			closeClient(t, c)
		}
		if err := cell.Close(); err != nil {
			t.Error(err)
		}
	})
}

func contentsOf(s seen) []byte {
	one, _ := s.request.(interface{ GetContents() []byte })
	if one == nil {
		return nil
	}
	return one.GetContents()
}
