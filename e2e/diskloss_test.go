package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// servers3 are three replicas that an operator starts by hand, always with --bootstrap.
type servers3 struct {
	*world
	procs map[string]*process
}

func startThree(t *testing.T) *servers3 {
	t.Helper()
	s := &servers3{world: newWorld(t), procs: map[string]*process{}}
	for _, id := range []string{"r1", "r2", "r3"} {
		s.run(id)
	}
	s.must("put", "/ls/local/file", "old")
	return s
}

// run starts a replica.
func (s *servers3) run(id string) *process {
	s.t.Helper()
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("r%d=127.0.0.1:%d,127.0.0.1:%d", i+1, s.base+i, s.base+10+i))
	}
	s.procs[id] = spawn(s.t, nil, bin("chubbyd"), "serve", "--bootstrap", "--insecure", "--cell", "local", "--id", id,
		"--members", strings.Join(members, ";"), "--data", s.data(id))
	return s.procs[id]
}

func (s *servers3) data(id string) string { return filepath.Join(s.dir, id) }

// crash kills replicas with SIGKILL and waits for their ends.
func (s *servers3) crash(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		_ = s.procs[id].cmd.Process.Kill() // it may have ended
		<-s.procs[id].done
	}
}

func (s *servers3) wipe(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		if err := os.RemoveAll(s.data(id)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// refused waits for a replica's end with exit code 78 and that message.
func (s *servers3) refused(id, want string) {
	s.t.Helper()
	if code := s.procs[id].wait(30 * time.Second); code != 78 || !strings.Contains(s.procs[id].stderr.String(), want) {
		s.t.Errorf("%s ended with %d, want 78, and %q in: %s", id, code, want, s.procs[id].stderr.String())
	}
}

// TestAmnesiacIsRefused: a write is acknowledged by r1 and r2 while r3 is away;
// both die, and r2 loses its disk. r2 and r3 must not go on without it.
func TestAmnesiacIsRefused(t *testing.T) {
	besideOthers(t)
	s := startThree(t)
	s.crash("r3")
	s.must("put", "/ls/local/file", "acknowledged")
	s.crash("r1", "r2")
	s.wipe("r2")
	s.run("r3")
	s.run("r2")
	s.refused("r2", "replica r2 lost its data: replica r3 knows another data directory")
	if r := s.do("--timeout", "5s", "cat", "/ls/local/file"); r.code == 0 {
		t.Errorf("r3 alone serves %q", r.out)
	}
	s.run("r1")
	if got := s.must("cat", "/ls/local/file"); got != "acknowledged" {
		t.Errorf("with r1 the cell serves %q", got)
	}
}

// TestMajorityOfDisksLost: r1 and r2 lose their disks and are started before r3,
// which has the data: no new cell begins over it.
func TestMajorityOfDisksLost(t *testing.T) {
	besideOthers(t)
	s := startThree(t)
	s.crash("r1", "r2", "r3")
	s.wipe("r1", "r2")
	s.run("r1").waitFor("waiting for every member", 20*time.Second)
	s.run("r2").waitFor("waiting for every member", 20*time.Second)
	s.run("r3")
	s.refused("r1", "replica r1 lost its data: replica r3 knows")
	s.refused("r2", "replica r2 lost its data: replica r3 knows")
	if r := s.do("--timeout", "5s", "cat", "/ls/local/file"); r.code == 0 || !s.procs["r3"].running() {
		t.Errorf("r3 alone serves %q", r.out)
	}
}

// TestServeNeedsBootstrap: an empty directory is refused without --bootstrap, and
// one that waits for the other members can be stopped.
func TestServeNeedsBootstrap(t *testing.T) {
	besideOthers(t)
	dir, base := t.TempDir(), freePorts(t)
	args := []string{
		"serve", "--insecure", "--cell", "c", "--id", "r1", "--data", filepath.Join(dir, "r1"),
		"--members", fmt.Sprintf("r1=127.0.0.1:%d,127.0.0.1:%d;r2=127.0.0.1:%d,127.0.0.1:%d", base, base+1, base+2, base+3),
	}
	p := spawn(t, nil, bin("chubbyd"), args...)
	if code := p.wait(20 * time.Second); code != 78 || !strings.Contains(p.stderr.String(), "--bootstrap") {
		t.Errorf("ended with %d: %s", code, p.stderr.String())
	}
	p = spawn(t, nil, bin("chubbyd"), append(args, "--bootstrap")...)
	p.waitFor("r2 (", 20*time.Second)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(20 * time.Second); code != 0 {
		t.Errorf("stopped while it waited: %d: %s", code, p.stderr.String())
	}
}
