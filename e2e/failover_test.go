package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest/processes"
	"github.com/chubbylock/chubby/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// ordinaryRounds is how often drills are repeated in make test.
const ordinaryRounds = 2

// rounds is how often drills are repeated; make acceptance sets more than an ordinary test run.
var rounds = flag.Int("rounds", ordinaryRounds, "how often to repeat the drills that are repeated")

// When the master is killed, holders of locks go on undisturbed, others can take locks within two
// seconds, and nothing that was acknowledged is lost.
func TestMasterKilled(t *testing.T) {
	w := start(t, "--no-restart")
	holder := w.ctl("-v", "acquire", "/ls/local/held", "--", "sh", "-c", "echo held; trap 'echo disturbed' TERM INT HUP; while :; do sleep 0.1; done")
	holder.waitFor("held", 20*time.Second)
	started := map[string]*process{}
	var took []time.Duration
	for i := range *rounds {
		w.must("put", "/ls/local/written", fmt.Sprint(i))
		master := w.status().Master
		began := time.Now()
		if p := started[master]; p != nil {
			w.kill9(p.cmd.Process.Pid)
		} else {
			w.kill9(w.replicas()[master].PID)
		}
		w.must("acquire", fmt.Sprintf("/ls/local/round-%d", i), "--", "true")
		took = append(took, time.Since(began))
		if got := w.must("cat", "/ls/local/written"); got != fmt.Sprint(i) {
			t.Fatalf("round %d: the file says %q", i, got)
		}
		started[master] = w.serve(master)
		w.waitHealthy(5)
	}
	slices.Sort(took)
	t.Logf("a lock taken through chubbyctl after kill -9 of the master: median %v, all %v", took[len(took)/2], took)
	if took[len(took)/2] > patience(2*time.Second) {
		t.Errorf("the median is %v, want at most 2 s", took[len(took)/2])
	}
	if !holder.running() || strings.Contains(holder.stdout.String(), "disturbed") {
		t.Errorf("the holder's CMD was disturbed\nstdout: %s\nstderr: %s", &holder.stdout, &holder.stderr)
	}
	for i := range *rounds {
		w.must("stat", fmt.Sprintf("/ls/local/round-%d", i))
	}
	noErr(t, holder.cmd.Process.Signal(syscall.SIGKILL))
}

// waitHealthy waits until that many replicas have caught up.
func (w *world) waitHealthy(n int) {
	w.t.Helper()
	stopIf(w.t, !comesTrue(30*time.Second, 100*time.Millisecond, func() bool {
		healthy := 0
		for _, r := range w.status().Replicas {
			if r.Healthy && r.Applied > 0 {
				healthy++
			}
		}
		return healthy >= n
	}), "fewer than %d replicas are healthy", n)
}

// When all five replicas are killed and started again, everything is as it was, and a holder that
// kept running is still the holder.
func TestAllKilled(t *testing.T) {
	besideOthers(t)
	w := start(t)
	w.must("put", "/ls/local/file", "before")
	holder := w.ctl("-o", "json", "acquire", "/ls/local/held")
	printed := holder.firstLine(20 * time.Second)
	var line struct {
		Sequencer string
		Token     uint64
		Session   string
	}
	noErr(t, json.Unmarshal([]byte(printed), &line))
	running := w.ctl("acquire", "/ls/local/running", "--", "sh", "-c", "echo held; trap 'echo disturbed' TERM INT HUP; while :; do sleep 0.1; done")
	running.waitFor("held", 20*time.Second)
	for _, r := range w.replicas() {
		w.kill9(r.PID)
	}
	began := time.Now()
	read := w.do("--timeout", "30s", "cat", "/ls/local/file")
	for read.code == 69 && time.Since(began) < patience(30*time.Second) { // nothing listens yet, and a command says so at once
		read = w.do("--timeout", "30s", "cat", "/ls/local/file")
	}
	stopIf(t, read.code != 0 || read.out != "before", "cat: exit %d, %q\n%s", read.code, read.out, read.err)
	t.Logf("served again %v after kill -9 of all five (restarted after 2 s)", time.Since(began).Round(time.Millisecond))
	w.do("sequencer", "check", line.Sequencer).exits(t, 0, "the holder's sequencer")
	locks := w.must("-o", "json", "locks", "/ls/local/held")
	if !strings.Contains(locks, line.Session) || !strings.Contains(locks, fmt.Sprint(line.Token)) {
		t.Errorf("the lock's holder is another: %s", locks)
	}
	if !holder.running() || !running.running() || strings.Contains(running.stdout.String(), "disturbed") {
		t.Errorf("a holder was disturbed\n%s%s\n%s%s", &holder.stdout, &holder.stderr, &running.stdout, &running.stderr)
	}
	noErr(t, running.cmd.Process.Signal(syscall.SIGKILL))
}

// Two replicas may stop. Of three that stop, calls wait; then they say so, with
// nothing half-done; and when one comes back in time, they go on.
func TestMajorityStopped(t *testing.T) {
	besideOthers(t)
	w := start(t, "--no-restart")
	w.must("put", "/ls/local/file", "one")
	all := w.replicas()
	for _, id := range []string{"r1", "r2"} {
		w.kill9(all[id].PID)
	}
	w.must("put", "/ls/local/file", "two")
	equal(t, w.must("cat", "/ls/local/file"), "two", "with two stopped the file says %q")
	w.kill9(all["r3"].PID)
	began := time.Now()
	r := w.do("--timeout", "3s", "put", "/ls/local/file", "three")
	if r.code != 69 || time.Since(began) > patience(6*time.Second) || r.err == "" {
		t.Errorf("with three stopped: exit %d after %v, stderr %q; want 69 after 3 s, and why", r.code, time.Since(began), r.err)
	}
	waiting := w.ctl("--timeout", patience(20*time.Second).String(), "put", "/ls/local/other", "four")
	back := w.serve("r3")
	waiting.exits(t, 20*time.Second, 0, "when one came back")
	equal(t, w.must("cat", "/ls/local/other"), "four", "the file says %q")
	if got := w.must("cat", "/ls/local/file"); got != "two" && got != "three" {
		t.Errorf("the file says %q, which nobody wrote", got)
	}
	report(t, back.end())
}

// A master is stopped for a while under load, and continued long after another was elected. It does no harm: no client
// reads an old value, with a cache or without; it grants no lock; no session is lost (decisions 5 and 12).
func TestMasterPaused(t *testing.T) {
	besideOthers(t)
	times, pause := 1, 3*time.Second
	if *full {
		times, pause = 20, 20*time.Second // longer than the leases that the master had granted
	}
	if *pauses > 0 {
		times = *pauses
	}
	w := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(times)*(pause+patience(time.Minute)))
	defer cancel()
	s := w.newShelf(ctx, "/ls/local/shelf", 8, client.Config{})
	all := []*client.Client{s.author}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for i := range 8 {
		c := w.client(client.Config{NoCache: i%2 == 1})
		all = append(all, c)
		busy.Go(func() { s.newReader(c, i).run(ctx, 10*time.Millisecond, stop) })
	}
	busy.Go(func() { s.write(ctx, 20*time.Millisecond, stop) })
	var door witness
	for range 4 {
		c := w.client(client.Config{})
		all = append(all, c)
		h := w.handle(ctx, c, "/ls/local/contended")
		busy.Go(func() { door.contend(ctx, t, h, stop) })
	}
	other := w.handle(ctx, w.client(client.Config{NoCache: true}), "/ls/local/file")
	for range times {
		w.pauseMaster(ctx, other, s, &door, pause)
	}
	close(stop)
	busy.Wait()
	t.Logf("%d pauses of %v: %s; %d locks granted, the last with token %d",
		times, pause, s.verdict(t), door.grants.Load(), door.last.Load())
	failIf(t, s.judged.Load() == 0 || door.grants.Load() == 0, "that is too little to have shown anything")
	failIf(t, door.overlaps.Load() > 0, "%d times two held the lock, or a token did not grow", door.overlaps.Load())
	intact(t, all...)
}

// pauseMaster stops the master for at least that long, and until the next one has acknowledged a write and granted both
// locks, so that the first one could do something wrong. Some calls wait in its sockets when it is continued.
func (w *world) pauseMaster(ctx context.Context, other *client.Handle, s *shelf, door *witness, pause time.Duration) {
	t := w.t
	t.Helper()
	old := w.replicas()[w.status().Master]
	z := newZombie(t, ctx, old.Client)
	processes.Halt(t, old.PID)
	going := sync.OnceFunc(func() { _ = syscall.Kill(old.PID, syscall.SIGCONT) })
	defer going()
	stopped := time.Now()
	held := must(other.Acquire(ctx, api.Exclusive))(t)
	locked := time.Since(stopped)
	if !comesTo(ctx, &s.writes, 2) || !comesTo(ctx, &door.grants, 8) { // one of each may have been on its way
		t.Fatalf("no other master took over, or what was under way has ended: %s; %d locks granted", s.verdict(t), door.grants.Load())
	}
	usable := time.Since(stopped)
	granted := make(chan *pb.Granted, 1)
	go func() {
		reply, _ := z.chubby.TryAcquire(ctx, &pb.TryAcquireRequest{
			Caller: z.caller, Mutation: &pb.Mutation{Number: 2, HighestIssued: 2, Outstanding: []uint64{2}}, Handle: z.handle, Mode: pb.LockMode_LOCK_MODE_EXCLUSIVE,
		})
		granted <- reply.GetGranted()
	}()
	time.Sleep(max(pause-usable, 300*time.Millisecond)) // the least is for the call to reach its socket
	going()
	if g := <-granted; g != nil {
		t.Errorf("a deposed master granted a lock that another holds with token %d: %v", held.Token(), g)
	}
	report(t, held.Err(), "the lock was lost")
	report(t, held.Release(ctx))
	w.waitHealthy(5)
	t.Logf("stopped for %v; a lock was granted after %v, and writes of what others cache went on after %v",
		time.Since(stopped).Round(time.Millisecond), locked.Round(time.Millisecond), usable.Round(time.Millisecond))
}

// comesTo waits until a counter has grown by that much.
func comesTo(ctx context.Context, count *atomic.Int64, more int64) bool {
	for end := count.Load() + more; count.Load() < end; time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// witness gets a report from the holders of one lock when they enter and leave, with their tokens.
type witness struct {
	inside, last, grants, overlaps atomic.Int64
}

// contend takes the lock again and again until stop is closed.
func (d *witness) contend(ctx context.Context, t *testing.T, h *client.Handle, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		l, err := h.Acquire(ctx, api.Exclusive)
		if err != nil {
			t.Error(err)
			return
		}
		if d.inside.Add(1) != 1 {
			d.overlaps.Add(1)
		}
		if token := int64(l.Token()); token <= d.last.Swap(token) {
			d.overlaps.Add(1)
		}
		d.grants.Add(1)
		time.Sleep(time.Millisecond) // so that another holder would be seen
		d.inside.Add(-1)
		if err := l.Release(ctx); err != nil {
			t.Error(fmt.Errorf("token %d: %w", l.Token(), err))
			return
		}
	}
}

// A master that was stopped while another was elected answers no call when it is continued, not even
// those that waited in its sockets: neither with old contents nor with a lease (decision 5). The test
// makes the calls without the client library, which would have gone to the new master long before.
func TestZombieMaster(t *testing.T) {
	besideOthers(t)
	w := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience(60*time.Second))
	defer cancel()
	other := w.handle(ctx, w.client(client.Config{Lease: time.Minute, NoCache: true}), "/ls/local/file")
	var reached, answered, stale, grants atomic.Int64
	for round := range *rounds {
		must(other.SetContents(ctx, fmt.Append(nil, "old", round)))(t)
		master := w.status().Master
		all := w.replicas()
		z := newZombie(t, ctx, all[master].Client)
		pid := all[master].PID
		processes.Halt(t, pid)
		_, err := other.SetContents(ctx, fmt.Append(nil, "new", round))
		if err != nil {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			t.Fatal(err)
		}
		// From here on the old contents are wrong. These calls wait in the zombie's sockets when it goes on.
		var calls sync.WaitGroup
		sent := make(chan struct{})
		for range 20 {
			calls.Go(func() {
				reply, err := z.chubby.GetContentsAndStat(ctx, &pb.GetContentsAndStatRequest{Caller: z.caller, Handle: z.handle})
				<-sent
				var refused *api.Error
				if err == nil || errors.As(pb.Error(err), &refused) && refused.Replica == master {
					reached.Add(1)
				}
				if err == nil {
					answered.Add(1)
					if string(reply.GetContents()) == fmt.Sprint("old", round) {
						stale.Add(1)
					}
				}
			})
			calls.Go(func() {
				// It does not know the event queue, so it is answered at once.
				reply, err := z.chubby.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: &pb.Caller{Session: z.caller.Session, Epoch: z.caller.Epoch - 1}})
				if err == nil && reply.GetGrant() != nil && reply.GetEpoch() == z.caller.Epoch {
					grants.Add(1)
				}
			})
		}
		time.Sleep(300 * time.Millisecond) // for the calls to reach the sockets
		noErr(t, syscall.Kill(pid, syscall.SIGCONT))
		close(sent)
		calls.Wait()
		w.waitHealthy(5)
	}
	failIf(t, reached.Load() == 0, "no call reached the master that was stopped: this shows nothing")
	t.Logf("%d rounds: %d reads reached it, %d were answered, %d of them stale; %d leases granted", *rounds, reached.Load(), answered.Load(), stale.Load(), grants.Load())
	if stale.Load() > 0 || grants.Load() > 0 {
		t.Errorf("a deposed master answered %d reads with old contents and granted %d leases", stale.Load(), grants.Load())
	}
}

// zombie is a session with one replica, made without the client library.
type zombie struct {
	chubby pb.ChubbyClient
	caller *pb.Caller
	handle []byte
}

func newZombie(t *testing.T, ctx context.Context, address string) *zombie {
	t.Helper()
	conn := must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close() })
	z := &zombie{chubby: pb.NewChubbyClient(conn)}
	nonce := make([]byte, 16)
	must(rand.Read(nonce))(t)
	s := must(z.chubby.CreateSession(ctx, &pb.CreateSessionRequest{Nonce: nonce, LeaseNs: int64(time.Minute)}))(t)
	z.caller = &pb.Caller{Session: s.GetSession(), Epoch: s.GetEpoch()}
	o := must(z.chubby.Open(ctx, &pb.OpenRequest{
		Caller: z.caller, Mutation: &pb.Mutation{Number: 1, HighestIssued: 1, Outstanding: []uint64{1}}, Path: "/ls/local/file", Read: true, Write: true,
	}))(t)
	z.handle = o.GetHandle()
	return z
}
