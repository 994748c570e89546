//go:build linux

package recipes

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A queue that is as large as its directory may be is worked off: neither the file of the turnstile, nor what is
// counted, nor the end of a try needs room that is not there.
func TestQueueAtItsQuota(t *testing.T) {
	t.Parallel()
	for _, nodes := range []bool{true, false} {
		t.Run(fmt.Sprint("nodes ", nodes), func(t *testing.T) {
			inSmallWorld(t, func(w *world) {
				operator, worker := w.Client("operator"), w.Client("worker")
				w.Mkdir(operator, queueDir)
				if nodes {
					w.OK(operator.SetDirectoryQuota(w.Ctx, queueDir, 5, 0))
				}
				items := 0
				for range 100 {
					_, err := NewQueue(operator, queueDir, QueueOptions{}).Put(w.Ctx, []byte("x"))
					if errors.Is(err, api.QuotaExceeded) {
						break
					}
					w.OK(err)
					if items++; !nodes && items == 10 {
						w.OK(operator.SetDirectoryQuota(w.Ctx, queueDir, 0, 1)) // what is there stays
					}
				}
				q := NewQueue(worker, queueDir, QueueOptions{Attempts: 2})
				failed := 0
				for n := range 2 * items {
					ctx, cancel := w.Brief(time.Minute)
					item, err := q.Take(ctx)
					cancel()
					w.OK(err)
					reason := strings.Repeat("x", api.MaxReason)
					switch {
					case item.Attempt() == 1 && n%4 == 0:
						w.OK(item.Abandon(w.Ctx))
					case item.Attempt() == 1:
						w.OK(item.Fail(w.Ctx, reason, 0))
					case n%2 == 0:
						w.OK(item.Done(w.Ctx))
					default:
						w.OK(item.Fail(w.Ctx, reason, 0))
						failed++
					}
				}
				w.idle(q)
				if dead := w.dead(q); failed == 0 || len(dead) != failed {
					t.Errorf("dead letters %v; %d have failed for the last time", dead, failed)
				}
			})
		})
	}
}

// An item whose file has no room for its record, which Put never makes, holds up nobody.
func TestQueuePassesOverWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c := w.Client("h1")
		var told []string
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 1, OnUnusable: func(id string, err error) { told = append(told, id+": "+api.CodeOf(err).String()) }})
		w.Mkdir(c, queueDir)
		text := "{\"queue\":1}\n"
		w.Put(c, queueDir+"/"+taskPrefix+"p1.large", text+strings.Repeat("x", api.MaxContents-len(text)))
		w.Put(c, queueDir+"/"+taskPrefix+"p1.short", text)
		_, err := q.Put(w.Ctx, []byte("x"))
		w.OK(err)
		w.OK(c.SetDirectoryQuota(w.Ctx, queueDir, 0, 1)) // the one that is short cannot grow
		ctx, cancel := w.Brief(time.Minute)
		defer cancel()
		item, err := q.Take(ctx)
		w.OK(err)
		if string(item.Data) != "x" || len(told) != 2 {
			t.Errorf("took %s; told %v", item.ID(), told)
		}
		before := w.generation(c)
		waiting, stop := w.Brief(5 * verify)
		defer stop()
		if _, err := NewQueue(w.far(), queueDir, QueueOptions{Attempts: 1}).Take(waiting); !errors.Is(err, api.DeadlineExceeded) {
			t.Error(err)
		}
		if most := uint64(50); w.generation(c)-before > most { // the lock of the one that is short has one for each try
			t.Errorf("it is tried without a pause: there were %d generations", w.generation(c)-before)
		}
		w.OK(item.Done(w.Ctx))
	})
}

// generation returns that of a file that is written now, which counts all that were before.
func (w *world) generation(c *client.Client) uint64 {
	w.T.Helper()
	stat, err := c.Put(w.Ctx, "/ls/local/now", nil)
	w.OK(err)
	return uint64(stat.Content)
}

// Whatever a worker does to the data of an item, what is given back is what was put.
func TestQueueDataIsAsItWasPut(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		q := NewQueue(w.Client("h1"), queueDir, QueueOptions{})
		_, err := q.Put(w.Ctx, []byte("data"))
		w.OK(err)
		for _, spoil := range []func(item *Item){
			func(item *Item) { copy(item.Data, "XXXX") },
			func(item *Item) { item.Data = item.Data[:1] },
			func(item *Item) { item.Data = nil },
			func(*Item) {},
		} {
			item, err := q.Take(w.Ctx)
			w.OK(err)
			if string(item.Data) != "data" {
				t.Errorf("try %d is of %q", item.Attempt(), item.Data)
			}
			spoil(item)
			w.OK(item.Fail(w.Ctx, "spoilt", 0))
		}
	})
}

// A dead letter that may not be read is shown as such.
func TestQueueDeadLetterThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	inSmallWorld(t, func(w *world) {
		c, stranger := w.Client("h1"), w.Client("stranger")
		q := NewQueue(c, queueDir, QueueOptions{Attempts: 1})
		id, err := q.Put(w.Ctx, nil)
		w.OK(err)
		item, err := q.Take(w.Ctx)
		w.OK(err)
		w.OK(item.Fail(w.Ctx, "bad", 0))
		w.Put(c, "/ls/local/acl/workers", "h1\n")
		h, err := c.Open(w.Ctx, queueDir+"/"+taskPrefix+id, client.OpenOptions{ChangeACL: true})
		w.OK(err)
		_, err = h.SetACL(w.Ctx, api.ACL{Read: "workers", Write: "workers", Change: "workers"})
		w.OK(err)
		w.OK(h.Close(w.Ctx))
		dead, err := NewQueue(stranger, queueDir, QueueOptions{}).DeadLetters(w.Ctx)
		if err != nil || len(dead) != 1 || dead[0].ID != id || !dead[0].Dead || !errors.Is(dead[0].Err, api.PermissionDenied) {
			t.Errorf("%+v, %v", dead, err)
		}
	})
}

// No count makes a record longer than what is kept free for it.
func TestQueueRecordHasItsRoom(t *testing.T) {
	t.Parallel()
	largest := itemRecord{Attempts: MaxAttempts, Begun: true, Dead: true, Delay: seconds(MaxDelay)}
	if n, put := len(largest.with(nil)), len(itemRecord{}.with(nil)); n != put {
		t.Errorf("a record of %d bytes; an item is put with one of %d", n, put)
	}
}
