package e2e

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

var killsTime = flag.Duration("kills", 0, "how long TestKills kills replicas whose disks strace makes slow; 0 is a few seconds, and without strace if it is missing")

// Replicas with slow disks are killed and stopped at random, one, three or all at one instant, most often while their master has entries under way that
// others may have and its own log has not. Files stay linearizable, no lock has two holders, a server with a guard lets in no request of an
// earlier holder, no session is lost, and all replicas compute the same state.
func TestKills(t *testing.T) {
	t.Parallel()
	k := startKills(t)
	defer k.keep()
	defer k.end()
	defer k.traffic.stop()
	span := max(*killsTime, 5*time.Second)
	for began, minute := time.Now(), 1; time.Since(began) < span; {
		k.trouble()
		if time.Since(began) > time.Duration(minute)*time.Minute {
			k.check()
			t.Logf("minute %d: %s", minute, k)
			minute++
		}
	}
	k.check()
	t.Log("in the end: ", k)
	least := 1
	if *killsTime > 0 {
		least = int(span.Minutes()) * 20
		failIf(t, 4*k.under < k.troubles(), "that is too few with entries under way to have shown anything")
	}
	k.traffic.stop()
	k.traffic.guard.check(least)
}

// kills is a cell with slow disks, and what was done to it.
type kills struct {
	*rollingCell
	strace  string                   // the program; "" if it is missing
	delays  map[string]time.Duration // of each write of a replica
	started []*process
	counts  map[string]int // of troubles, by their kind
	said    []byte         // of each of them, when and what
	under   int            // how many of them came while the master was about to write entries to its log

	holder    *client.Client // of held
	held      *client.Lock   // from the beginning to the end
	traffic   *traffic
	registers []*history
	firsts    []operation // of the registers
}

func startKills(t *testing.T) *kills {
	t.Helper()
	k := &kills{counts: map[string]int{}, delays: map[string]time.Duration{}}
	k.dealDisks(rollingIDs)
	var err error
	if k.strace, err = exec.LookPath("strace"); err != nil && *killsTime > 0 {
		t.Fatalf("strace makes the disks slow, and is missing: apt-get install strace (%v)", err)
	}
	k.rollingCell = startRollingCell(t, thisVersion())
	k.slow, k.lease = k.slowDisk, api.MaxLease
	k.kill(rollingIDs) // and give all slow disks
	k.holder = k.newClient(client.Config{})
	k.held = must(k.handle(t.Context(), k.holder, "/ls/local/held").Acquire(t.Context(), api.Exclusive))(t)
	k.traffic = startTraffic(t, k.rollingCell, thisVersion())
	k.traffic.contendByHandles()
	for i := range 4 {
		h, first := k.traffic.swapByHandles(fmt.Sprintf("/ls/local/register-%d", i), 5*time.Millisecond)
		k.registers, k.firsts = append(k.registers, h), append(k.firsts, first)
	}
	return k
}

// strace adds one of these to each write. Two of five replicas have the faster disk: they have an entry long before a master with a slower one
// has it, and a cell that answers then, or calls it committed, loses it when all are killed.
const (
	fastWrite = 2 * time.Millisecond
	slowWrite = 40 * time.Millisecond
)

// dealDisks gives faster disks to two of these, and slower ones to all others.
func (k *kills) dealDisks(among []string) {
	chosen := rand.Perm(len(among))[:2]
	for _, id := range rollingIDs {
		k.delays[id] = slowWrite
	}
	for _, i := range chosen {
		k.delays[among[i]] = fastWrite
	}
}

// slowDisk has strace delay what a replica writes to files. A write waits before it is done: a kill loses it, as a loss of power does. One
// that waits for its sync is in the system's memory, and survives. With -D, strace is a child of the replica, whose process is that of cmd.
func (k *kills) slowDisk(id string, cmd *exec.Cmd) {
	cmd.Env = append(cmd.Env, longestElectionTimeout)
	if k.strace == "" {
		return
	}
	write := k.delays[id].Microseconds()
	cmd.Path, cmd.Args = k.strace, append([]string{"strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=pwrite64,fsync,fdatasync",
		"-e", fmt.Sprintf("inject=pwrite64:delay_enter=%d", write), "-e", fmt.Sprintf("inject=fsync,fdatasync:delay_exit=%d", write/2)}, cmd.Args...)
}

// start starts a replica.
func (k *kills) start(id string) {
	k.t.Helper()
	k.started = append(k.started, k.serveBy(id, thisVersion()))
}

// trouble makes trouble for the master or another replica, usually while the master has entries under way, and lets the cell serve for a while.
func (k *kills) trouble() {
	k.t.Helper()
	master := k.master()
	if k.delays[master] == fastWrite && rand.N(4) > 0 { // one with a faster disk is elected more often
		k.do("cell", "transfer", "--to", k.withDisk(slowWrite)[rand.N(3)])
		master = k.master()
	}
	ids := slices.DeleteFunc(slices.Clone(rollingIDs), func(id string) bool { return id == master })
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = append(ids, master)
	kind := []string{"all", "all", "three", "three", "the master", "the master", "another", "stopped"}[rand.N(8)]
	slow, fast := k.withDisk(slowWrite), k.withDisk(fastWrite)
	ids = map[string][]string{"all": ids, "the master": {master}, "three": slow, "another": ids[:1], "stopped": {master}}[kind]

	under := k.awaitWrite(master)
	k.said = fmt.Appendf(k.said, "%s: %s: %v, with the master %s, whose writes take %v; entries are under way: %v\n",
		time.Now().Format(time.StampMilli), kind, ids, master, k.delays[master], under)
	if k.counts[kind]++; under {
		k.under++
	}
	switch kind {
	case "stopped":
		k.signal(syscall.SIGSTOP, ids)
		time.Sleep(rand.N(3 * time.Second))
		k.signal(syscall.SIGCONT, ids)
	case "three": // the others, which may have more entries, are not there while these elect a master
		k.signal(syscall.SIGSTOP, fast)
		k.kill(ids)
		k.master()
		k.signal(syscall.SIGCONT, fast)
	default:
		k.kill(ids)
	}
	k.master()
	time.Sleep(rand.N(1500 * time.Millisecond))
	k.traffic.check()
}

// kill kills replicas at one instant, and starts them again.
func (k *kills) kill(ids []string) {
	k.t.Helper()
	k.signal(syscall.SIGKILL, ids)
	for _, id := range ids {
		if code := k.procs[id].wait(20 * time.Second); code != 128+int(syscall.SIGKILL) {
			k.t.Fatalf("%s has ended by itself, with %d: %s", id, code, &k.procs[id].stderr)
		}
	}
	k.startAgain(ids)
}

// startAgain starts replicas that were killed, one of them or more a little later. If all were killed, those with slower disks often come
// first, and get faster ones: they can elect a master among themselves, without those that may have more entries.
func (k *kills) startAgain(ids []string) {
	k.t.Helper()
	if len(ids) == len(rollingIDs) {
		slow := k.withDisk(slowWrite)
		if rand.N(4) > 0 {
			ids = append(slices.Clone(slow), k.withDisk(fastWrite)...)
		}
		k.dealDisks(slow)
	}
	late := len(ids) / 2
	for i, id := range ids {
		if i == len(ids)-late {
			time.Sleep(rand.N(2 * time.Second))
		}
		k.start(id)
	}
}

// withDisk returns the replicas that have such a disk.
func (k *kills) withDisk(write time.Duration) []string {
	return slices.DeleteFunc(slices.Clone(rollingIDs), func(id string) bool { return k.delays[id] != write })
}

// signal sends a signal to replicas at one instant.
func (k *kills) signal(s syscall.Signal, ids []string) {
	k.t.Helper()
	for _, id := range ids {
		report(k.t, k.procs[id].cmd.Process.Signal(s), s, "to", id)
	}
}

// awaitWrite waits until a master is about to write entries, and a part of that delay, in which others may write them. It reports whether
// they are still not in the master's log then.
func (k *kills) awaitWrite(master string) bool {
	pid := k.procs[master].cmd.Process.Pid
	for end := time.Now().Add(time.Second); !writesLog(pid) && time.Now().Before(end); {
		time.Sleep(500 * time.Microsecond)
	}
	time.Sleep(rand.N(k.delays[master] + 1))
	return writesLog(pid)
}

// writesLog reports whether a thread of a process is about to write to Raft's log.
func writesLog(pid int) bool {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid)) // the pattern is well formed
	for _, call := range calls {
		text, _ := os.ReadFile(call) // the thread may have ended
		var number, fd int
		if n, _ := fmt.Sscanf(string(text), "%d 0x%x", &number, &fd); n < 2 || number != syscall.SYS_PWRITE64 {
			continue
		}
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if strings.HasSuffix(file, ".wal") || filepath.Base(file) == "log.db" {
			return true
		}
	}
	return false
}

// check checks all that clients were promised, while they pause.
func (k *kills) check() {
	k.t.Helper()
	k.traffic.whilePaused(func() {
		k.waitCaughtUp()
		k.checkHashes()
		for i, h := range k.registers {
			report(k.t, h.check(k.firsts[i]), "register", i, "is not linearizable:")
		}
		report(k.t, k.held.Err(), "the lock that is held from the beginning")
		report(k.t, k.holder.CheckSequencer(k.t.Context(), k.held.Sequencer().String()), "its sequencer")
	})
	k.traffic.check()
	k.stopIfFailed()
}

// String says what has been done.
func (k *kills) String() string {
	operations := 0
	for _, h := range k.registers {
		h.mu.Lock()
		operations += len(h.operations)
		h.mu.Unlock()
	}
	k.traffic.guard.past.mu.Lock()
	defer k.traffic.guard.past.mu.Unlock()
	return fmt.Sprintf("%d operations with registers, %d holders of the lock; kills and stops: %d %v, %d of them while the master was about to write entries",
		operations, len(k.traffic.guard.past.texts), k.troubles(), k.counts, k.under)
}

func (k *kills) troubles() (all int) {
	for _, n := range k.counts {
		all += n
	}
	return all
}

// keep keeps what may tell why the test has failed: data, logs and histories.
func (k *kills) keep() {
	if !k.t.Failed() {
		return
	}
	dir := must(os.MkdirTemp("", "chubby-kills-"))(k.t)
	err := os.CopyFS(filepath.Join(dir, "cell"), os.DirFS(k.dir))
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "troubles.txt"), k.said, 0o600))
	for i, p := range k.started {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("replica-%d.log", i)), fmt.Appendf(nil, "%s\n%s", p.cmd, &p.stderr), 0o600))
	}
	for i, h := range k.registers {
		var text []byte
		for _, o := range append([]operation{k.firsts[i]}, h.operations...) {
			text = fmt.Appendf(text, "%+v\n", o)
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("register-%d.txt", i)), text, 0o600))
	}
	k.t.Logf("%s; %s has the data of all replicas, what each process has logged, and the histories: %v", k, dir, err)
}
