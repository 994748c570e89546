package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

const guardedLock = "/ls/local/guarded"

// TestGuard: primaries change every second, and the network delays and repeats their requests. The
// guarded server accepts no request with a token below one that it accepted before, also across
// kill -9 (Chubby §2.4).
func TestGuard(t *testing.T) {
	besideOthers(t)
	requests, kills, successions := int64(5_000), 2, 8
	if *full {
		requests, kills, successions = 100_000, 10, 60
	}
	cell := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	holder := cell.client(client.Config{})
	lock, err := holder.Open(ctx, guardedLock, client.OpenOptions{Write: true, Create: client.File})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, dir: t.TempDir(), room: make(chan struct{}, 512)}
	w.startServer()
	senders := w.listen()

	var past primaries
	var busy, replacing sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	replacing.Go(func() { past.replace(ctx, cell, lock, holder, stop) })
	for {
		past.mu.Lock()
		first := len(past.texts) > 0
		past.mu.Unlock()
		if first || ctx.Err() != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	for i := range 64 {
		send := senders[i%len(senders)]
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					send(ctx, past.anySequencer())
				}
			}
		})
	}
	for killed := 0; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		answered := w.accepted.Load() + w.stale.Load()
		if killed < kills && answered > requests*int64(killed+1)/int64(kills+1) {
			w.killServer()
			killed++
		}
		past.mu.Lock()
		n := len(past.texts)
		past.mu.Unlock()
		if answered >= requests && n >= successions && killed == kills {
			break
		}
	}
	close(stop)
	busy.Wait()
	w.later.Wait()
	took := time.Since(began)
	replacing.Wait()
	w.checkJournal(len(past.texts), kills, took)
}

// readJournal reads what all incarnations of the server have written: how many requests were let in, of how many tokens, and how many lines
// are of a token below that of a line before.
func (w *wire) readJournal() (let, tokens, lower int) {
	w.t.Helper()
	journal, err := os.ReadFile(filepath.Join(w.dir, "journal"))
	if err != nil {
		w.t.Fatal(err)
	}
	var newest uint64
	for line := range bytes.Lines(journal) {
		var what string
		var token uint64
		if _, err := fmt.Sscanf(string(line), "%s %d\n", &what, &token); err != nil {
			w.t.Fatalf("journal: %q: %v", line, err)
		}
		if what == "begin" {
			let++
		}
		if token < newest {
			if lower++; lower <= 5 {
				w.t.Errorf("%s of token %d after work of token %d", what, token, newest)
			}
		}
		if token > newest {
			newest = token
			tokens++
		}
	}
	return let, tokens, lower
}

// checkJournal checks the order of the tokens in the journal, and that the test has shown it.
func (w *wire) checkJournal(primaries, kills int, took time.Duration) {
	w.t.Helper()
	let, tokens, lower := w.readJournal()
	answered := w.accepted.Load() + w.stale.Load()
	w.t.Logf("%d requests answered in %v (%.0f/s), %d of them repeated by the network: %d let in (%d in the journal), %d stale ones refused; "+
		"%d unanswered while the server was killed %d times; %d primaries, %d of which were let in",
		answered, took.Round(time.Second), float64(answered)/took.Seconds(), w.repeated.Load(), w.accepted.Load(), let, w.stale.Load(),
		w.lost.Load(), kills, primaries, tokens)
	if n := w.lower.Load(); lower > 0 || n > 0 {
		w.t.Errorf("%d lines of the journal are of lower tokens than those before; %d requests were let in after the answer to one with a higher token", lower, n)
	}
	if int64(let) < w.accepted.Load() || w.stale.Load() < answered/20 || w.accepted.Load() < answered/20 || w.repeated.Load() == 0 || tokens < primaries/2 {
		w.t.Error("the test shows nothing")
	}
	if w.other.Load() > 0 {
		w.t.Errorf("%d answers were neither", w.other.Load())
	}
}
