package cell

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
)

// Of the clients that a change waits for, those are cut off that were told so long
// ago, and not those who were told just now, because another that was told before
// is late.
func TestOnlyWhoIsLateIsCutOff(t *testing.T) {
	inSolo(t, nil, func(t *testing.T, m *soloMaster) {
		m.slowClient = 2 * time.Second
		author, late, prompt := m.client(t, 1), m.client(t, 2), m.client(t, 3)
		f := author.open(t, "/ls/local/f", api.MayCreate).handle
		late.open(t, "/ls/local/f", api.MustExist)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-author.write(ctx, f); !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		prompt.open(t, "/ls/local/f", api.MustExist)
		time.Sleep(5 * time.Second)
		wrote := author.write(t.Context(), f)
		time.Sleep(time.Second)
		synctest.Wait()
		alive := func(c *soloClient) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.leases.Alive(c.who.session)
		}
		if alive(late) || !alive(prompt) {
			t.Errorf("late is alive: %v; prompt is alive: %v", alive(late), alive(prompt))
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if alive(prompt) {
			t.Error("it has held up the change for longer than it may, and is not cut off")
		}
		late.acknowledge(t, late.hear(t))
		prompt.acknowledge(t, prompt.hear(t))
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
}
