package chubbyvault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/hashicorp/vault/sdk/physical"
)

// die has a host end in the middle of a Put: its chunks are written, and the entry's file is not. What it
// sends afterwards does not arrive.
func (w *world) die(b *Backend, host, key string, value []byte) staged {
	w.Helper()
	var s staged
	if err := b.keeper.Do(w.Context(), func(c *client.Client) (err error) {
		s, err = b.stage(w.Context(), c, key, value)
		return err
	}); err != nil {
		w.Fatal(err)
	}
	w.cell.Cut(host)
	return s
}

// A writer dies in the middle of replacing a value in chunks: the entry stays as it was, and the next
// writer, of any entry, removes what is left once the session has ended.
func TestWriterDies(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.backend("one"), w.backend("two")
		w.put(one, "entry", large('a'))
		w.die(one, "one", "entry", large('b'))
		w.want(two, "entry", large('a'))
		if n := w.chunked(); n != 2 {
			w.Fatalf("%d values in chunks; want the old and the one that is not complete", n)
		}
		if n, err := two.Sweep(w.Context()); n != 0 || err != nil {
			w.Errorf("the sweep has removed %d values of a writer whose session lasts, %v", n, err)
		}
		w.sleep(30 * time.Second) // its session ends
		w.want(two, "entry", large('a'))
		w.put(two, "other", large('c'))
		if n := w.chunked(); n != 2 {
			w.Errorf("%d values in chunks after the next Put; want two", n)
		}
		w.want(two, "entry", large('a'))
		w.want(two, "other", large('c'))
	})
}

// The same with a value that no entry had before, and Sweep.
func TestSweep(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		two := w.backend("two")
		w.put(two, "kept", large('k'))
		for i := range 3 {
			host := fmt.Sprint("dying", i)
			w.die(w.backend(host), host, fmt.Sprint("new", i), large('n'))
		}
		if err := w.operator.MkdirAll(w.Context(), two.chunks()+"/"+newID()); err != nil { // of one that dies earlier still
			w.Fatal(err)
		}
		w.sleep(30 * time.Second)
		if n, err := two.Sweep(w.Context()); n != 4 || err != nil {
			w.Errorf("the sweep has removed %d values, %v; want 4", n, err)
		}
		if n := w.chunked(); n != 1 {
			w.Errorf("%d values in chunks after the sweep; want one", n)
		}
		if n, err := two.Sweep(w.Context()); n != 0 || err != nil {
			w.Errorf("the next sweep has removed %d values, %v", n, err)
		}
		w.want(two, "kept", large('k'))
		w.want(two, "new0", nil)
	})
}

// A writer that is slow is not one that has died: sweeps of others leave its chunks alone, and its value is complete.
func TestSweepLeavesWritersAlone(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.backend("one"), w.backend("two")
		if err := one.keeper.Do(w.Context(), func(c *client.Client) error {
			s, err := one.stage(w.Context(), c, "entry", large('a'))
			if err != nil {
				return err
			}
			if n, err := two.Sweep(w.Context()); n != 0 || err != nil {
				w.Errorf("the sweep has removed %d, %v", n, err)
			}
			write, err := one.writer(w.Context(), c)
			if err == nil {
				err = one.replace(w.Context(), c, write, fileOf("entry"), s.head)
			}
			if n, err := two.Sweep(w.Context()); n != 0 || err != nil {
				w.Errorf("the sweep has removed %d, %v", n, err)
			}
			s.end(w.Context())
			return err
		}); err != nil {
			w.Fatal(err)
		}
		w.want(two, "entry", large('a'))
	})
}

// meanwhile returns a backend, and a function after which the nth answer to that method arrives only when
// do has returned.
func (w *world) meanwhile(host, method string, do func()) (b *Backend, arm func(nth int64)) {
	var left atomic.Int64
	b = w.backend(host, func(cfg *Config) {
		cfg.Client.NoCache = true
		cfg.Client.Dialer = w.cell.Lossy(host, func(answered string) bool {
			if strings.HasSuffix(answered, method) && left.Add(-1) == 0 {
				do()
			}
			return false
		})
	})
	return b, left.Store
}

// A sweep takes the chunks of a writer for garbage before the writer has their lock, when there is only
// their directory, and when there is the file that names the key: the writer begins anew.
func TestSweepBeforeTheLock(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		two, swept := w.backend("two"), 0
		one, arm := w.meanwhile("one", "/Open", func() {
			n, err := two.Sweep(w.Context())
			if err != nil {
				w.Error(err)
			}
			swept += n
		})
		w.put(one, "entry", large('a'))
		for nth := range int64(2) {
			arm(nth + 1)
			w.put(one, "entry", large(byte(nth)))
			w.want(two, "entry", large(byte(nth)))
			if swept != int(nth)+1 {
				w.Errorf("%d values were swept by now; want %d", swept, nth+1)
			}
		}
	})
}

// A value in chunks is replaced after its entry's file was read and before its chunks are: the reader gets
// the new one. If chunks are missing otherwise, it is an error.
func TestReplacedWhileReading(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one := w.backend("one")
		reader, arm := w.meanwhile("reader", "/GetContentsAndStat", func() { w.put(one, "entry", large('b')) })
		w.put(one, "entry", large('a'))
		arm(1)
		w.want(reader, "entry", large('b'))
		if err := w.operator.RemoveAll(w.Context(), one.chunks()); err != nil {
			w.Fatal(err)
		}
		if entry, err := reader.Get(w.Context(), "entry"); !errors.Is(err, api.Corrupt) {
			w.Errorf("%v, %v", entry, err)
		}
	})
}

// Whoever reads while a value is replaced has one of the values, whole: large or small, or none.
func TestReadersSeeOneValue(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		one, two := w.backend("one"), w.backend("two", func(cfg *Config) { cfg.Client.NoCache = true })
		w.put(one, "entry", large('0'))
		done := make(chan struct{})
		var readers sync.WaitGroup
		for _, b := range []*Backend{one, two} {
			readers.Go(func() {
				for !closed(done) {
					entry, err := b.Get(w.Context(), "entry")
					if err != nil {
						w.Errorf("get: %v", err)
						return
					}
					if entry != nil && (len(entry.Value) == 0 || len(bytes.Trim(entry.Value, string(entry.Value[:1]))) > 0) {
						w.Error("a mix of two values")
						return
					}
				}
			})
		}
		for i := range 8 {
			switch i % 4 {
			case 2:
				w.put(one, "entry", []byte("ssss"))
			case 3:
				if err := one.Delete(w.Context(), "entry"); err != nil {
					w.Error(err)
				}
			default:
				w.put(one, "entry", large(byte('0'+i%10)))
			}
		}
		close(done)
		readers.Wait()
	})
}

// Neither Delete nor a Put of a small value leaves chunks behind.
func TestNothingIsLeftBehind(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		b := w.backend("one")
		for _, end := range []func(key string){
			func(key string) { w.put(b, key, []byte("small")) },
			func(key string) { w.put(b, key, large('b')) },
			func(string) {},
		} {
			w.put(b, "a/b/entry", large('a'))
			end("a/b/entry")
			if err := b.Delete(w.Context(), "a/b/entry"); err != nil {
				w.Error(err)
			}
			if left := append(w.tree(root+"/data"), w.tree(root+"/chunks")...); len(left) > 0 {
				w.Errorf("left behind: %q", left)
			}
		}
	})
}

// Many write and delete one entry, in several processes: in the end there is one value, whole, and the
// chunks of no other.
func TestManyWriters(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var all sync.WaitGroup
		for host := range 3 {
			b := w.backend(fmt.Sprint("host", host))
			for writer := range 2 {
				all.Go(func() {
					for i := range 8 {
						var err error
						switch (i + writer) % 4 {
						case 0:
							err = b.Put(w.Context(), &physical.Entry{Key: "d/entry", Value: []byte("small")})
						case 1:
							err = b.Delete(w.Context(), "d/entry")
						default:
							err = b.Put(w.Context(), &physical.Entry{Key: "d/entry", Value: large(byte('0' + host))})
						}
						if err != nil {
							w.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		b := w.backend("last")
		w.put(b, "d/entry", large('z'))
		w.want(b, "d/entry", large('z'))
		if _, err := b.Sweep(w.Context()); err != nil { // of those that were deleted as another wrote them
			w.Error(err)
		}
		if n := w.chunked(); n != 1 {
			w.Errorf("%d values in chunks; want one", n)
		}
	})
}

// Of two that replace a value at the same time, each removes the chunks of the one that it has replaced.
func TestEachRemovesWhatItReplaces(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var all sync.WaitGroup
		for host := range 4 {
			b := w.backend(fmt.Sprint("host", host))
			all.Go(func() {
				for range 5 {
					if err := b.keeper.Do(w.Context(), func(c *client.Client) error {
						write, err := b.writer(w.Context(), c)
						if err != nil {
							return err
						}
						s, err := b.stage(w.Context(), c, "entry", large('a')) // without the sweep of Put
						if err == nil {
							err = b.replace(w.Context(), c, write, fileOf("entry"), s.head)
						}
						s.end(w.Context())
						return err
					}); err != nil {
						w.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := w.chunked(); n != 1 {
			w.Errorf("%d values in chunks; want one", n)
		}
	})
}

// The answer to a step of Put is lost, and the master with it: Put has written once. It leaves nothing behind, unless the
// election took longer than client.CleanupTime, and then nothing that a sweep does not remove.
func TestLostAnswer(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var mu sync.Mutex
		lose := "" // the method whose next answer is lost; the master is killed then
		lost := make(chan string, 1)
		b := w.backend("one", func(cfg *Config) {
			cfg.Client.Dialer = w.cell.Lossy("one", func(method string) bool {
				mu.Lock()
				defer mu.Unlock()
				if lose == "" || !strings.HasSuffix(method, lose) {
					return false
				}
				lose = ""
				lost <- w.cell.Master()
				return true
			})
		})
		for i, row := range []struct {
			method string
			value  []byte
		}{{"/SetContents", large('b')}, {"/Open", large('c')}, {"/SetContents", []byte("d")}, {"/Open", []byte("e")}, {"/Acquire", large('f')}, {"/Delete", []byte("g")}} {
			key := fmt.Sprint("dir/entry", i)
			w.put(b, key, large('a'))
			mu.Lock()
			lose = row.method
			mu.Unlock()
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.put(b, key, row.value)
			}()
			id := <-lost
			w.cell.Kill(id)
			<-done
			w.cell.Restart(id)
			w.want(b, key, row.value)
			if err := b.Delete(w.Context(), key); err != nil {
				w.Error(err)
			}
		}
		w.sleep(10 * time.Second)                                // what is given back in the background is
		if n, err := b.Sweep(w.Context()); n > 1 || err != nil { // of /Delete, which was one of the chunks of the value before
			w.Errorf("the sweep has removed %d values, %v; want one at most", n, err)
		}
		if left := append(w.tree(root+"/data"), w.tree(root+"/chunks")...); len(left) > 0 {
			w.Errorf("left behind: %q", left)
		}
	})
}

// The context of a Put ends in the middle: the entry has the old value or the new one, and stays so.
func TestContextEnds(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		b := w.backend("one")
		w.put(b, "entry", large('a'))
		for i := range 9 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Duration(i)*23*time.Millisecond)
			w.cell.Slow("one", 5*time.Millisecond)
			err := b.Put(ctx, &physical.Entry{Key: "entry", Value: large('b')})
			cancel()
			w.cell.Slow("one", 0)
			entry, getting := b.Get(w.Context(), "entry")
			if getting != nil {
				w.Fatalf("after %v: %v", err, getting)
			}
			is := entry.Value[0]
			w.want(b, "entry", large(is))
			if is == 'a' && err == nil || err != nil && !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("the value is %q after %v", is, err)
			}
			w.put(b, "entry", large('a'))
		}
		if _, err := b.Sweep(w.Context()); err != nil {
			w.Error(err)
		}
		if n := w.chunked(); n != 1 {
			w.Errorf("%d values in chunks; want one", n)
		}
	})
}
