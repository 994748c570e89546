package chubbystorage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	chubbystorage "github.com/chubbylock/chubby/contrib/certmagic"
)

// trial is a cell of processes, and storages.
type trial struct {
	*testing.T
	cell *processes.Cell
}

// storage returns a storage with a session of its own.
func (p *trial) storage(ctx context.Context) *chubbystorage.Storage {
	p.Helper()
	k, err := client.Keep(ctx, client.Config{Servers: p.cell.Servers()})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = k.Close(ctx) // its session ends with its lease otherwise
	})
	s, err := chubbystorage.New(k, chubbystorage.Config{Path: root, LockDelay: time.Second})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// killTime is for how long masters are killed, on a machine that is fast enough.
const killTime = 8 * time.Second

// All of it goes on while the master is killed again and again, in a cell of processes: what FileStorage does, locks, large
// values and their readers, writers that are killed too, and CertMagic itself.
func TestKills(t *testing.T) {
	t.Parallel() // with TestDeadWriter
	p := &trial{T: t, cell: processes.Start(t, 3)}
	limit, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	busy, stop := context.WithCancel(limit)
	defer stop()
	var all sync.WaitGroup
	for _, test := range []func(busy, ctx context.Context){p.likeFiles, p.count, p.largeValues, p.killedWriters, p.certificates} {
		all.Go(func() { test(busy, limit) })
	}
	const least = 3
	kills := p.cell.KillMastersFor(limit, time.Second, killTime, least)
	stop()
	all.Wait()
	if t.Logf("%d masters were killed", kills); kills < least {
		t.Errorf("%d masters were killed in %v", kills, killTime)
	}
}

func (p *trial) likeFiles(busy, ctx context.Context) {
	s := p.storage(ctx)
	files := &certmagic.FileStorage{Path: p.TempDir()}
	r := rand.New(rand.NewPCG(1, 2))
	calls := 0
	for ; busy.Err() == nil && !p.Failed(); calls += 10 {
		likeFiles(ctx, p.T, s, files, r, 10)
	}
	p.Logf("%d calls are like those of FileStorage", calls)
}

// count adds to a number under a lock, from two storages with two goroutines each.
func (p *trial) count(busy, ctx context.Context) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards added
	added := 0
	s := []*chubbystorage.Storage{p.storage(ctx), p.storage(ctx)}
	load := func(s *chubbystorage.Storage) int {
		text, err := s.Load(ctx, "count/n")
		n, _ := strconv.Atoi(string(text)) // 0 before the first
		if err != nil && api.CodeOf(err) != api.NotFound {
			p.Error(err)
		}
		return n
	}
	for i := range 4 {
		all.Go(func() {
			for busy.Err() == nil {
				if err := s[i%2].Lock(ctx, "count"); err != nil {
					p.Error(err)
					return
				}
				wants(p, "Store", s[i%2].Store(ctx, "count/n", strconv.AppendInt(nil, int64(load(s[i%2])+1), 10)), api.OK)
				mu.Lock()
				added++
				mu.Unlock()
				wants(p, "Unlock", s[i%2].Unlock(ctx, "count"), api.OK)
			}
		})
	}
	all.Wait()
	if n := load(s[0]); n != added || n == 0 {
		p.Errorf("the number is %d after %d additions", n, added)
	}
	p.Logf("%d additions under a lock", added)
}

// versioned returns a large value that says its version in each line.
func versioned(version int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%015d\n", version), 3*api.MaxContents/16-1)
}

// versionOf returns the version of a value, and reports whether the value is whole.
func versionOf(value []byte) (int, bool) {
	if len(value) < 16 {
		return 0, false
	}
	version, err := strconv.Atoi(string(value[:15]))
	return version, err == nil && bytes.Equal(value, versioned(version))
}

// largeValues writes one version after the other; a reader sees each whole, and none that is older than the last.
func (p *trial) largeValues(busy, ctx context.Context) {
	writer, reader := p.storage(ctx), p.storage(ctx)
	wants(p, "Store", writer.Store(ctx, "large/k", versioned(1)), api.OK)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for version := 2; busy.Err() == nil; version++ {
			wants(p, "Store", writer.Store(ctx, "large/k", versioned(version)), api.OK)
		}
	}()
	newest, loads := 0, 0
	for ; busy.Err() == nil; loads++ {
		value, err := reader.Load(ctx, "large/k")
		version, whole := versionOf(value)
		if err != nil || !whole || version < newest {
			p.Errorf("Load: %v; version %d, whole %v, after %d", err, version, whole, newest)
		}
		newest = version
	}
	<-done
	p.Logf("%d versions of a large value, read %d times", newest, loads)
}

// writerTask makes this program a writer that is killed: its value is a task.
const writerTask = "CHUBBYSTORAGE_TEST_WRITER"

type task struct {
	Servers []string
	First   int // the version to begin with
}

// beWriter stores versions until it is killed, and prints each when it is stored.
func beWriter(text string) int {
	ctx := context.Background()
	var k task
	err := json.Unmarshal([]byte(text), &k)
	if err == nil {
		var keeper *client.Keeper
		if keeper, err = client.Keep(ctx, client.Config{Servers: k.Servers, Lease: time.Second}); err == nil {
			var s *chubbystorage.Storage
			s, err = chubbystorage.New(keeper, chubbystorage.Config{Path: root})
			for version := k.First; err == nil; version++ {
				if err = s.Store(ctx, "killed/k", versioned(version)); err == nil {
					fmt.Println(version)
				}
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// killedWriters kills one writer after the other. What they have stored stays, and is whole.
func (p *trial) killedWriters(busy, ctx context.Context) {
	reader := p.storage(ctx)
	stored, writers := 0, 0
	for ; busy.Err() == nil && !p.Failed(); writers++ {
		text, err := json.Marshal(task{p.cell.Servers(), stored + 1})
		if err != nil {
			p.Error(err)
			return
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerTask+"="+string(text))
		said := make(chan int, 1000) // the versions that it has stored
		writer := processes.Run(p, cmd, func(line string) bool {
			version, err := strconv.Atoi(line)
			if err == nil {
				said <- version
			}
			return err == nil
		})
		for more := 1 + writers%3; more > 0; more-- {
			select {
			case stored = <-said:
			case <-ctx.Done():
				p.Error("a writer stores nothing")
				return
			}
		}
		<-time.After(rand.N(50 * time.Millisecond))
		writer.End(syscall.SIGKILL)
		for len(said) > 0 {
			stored = <-said
		}
		value, err := reader.Load(ctx, "killed/k")
		version, whole := versionOf(value)
		if err != nil || !whole || version < stored || version > stored+1 {
			p.Errorf("Load after a kill: %v; version %d, whole %v, after %d was stored", err, version, whole, stored)
		}
		stored = version
	}
	wants(p, "Store", reader.Store(ctx, "killed/k", nil), api.OK)
	if list, err := reader.List(ctx, "killed", true); err != nil || len(list) != 1 {
		p.Errorf("List: %q %v", list, err)
	}
	p.Logf("%d writers were killed, after %d versions", writers, stored)
}
