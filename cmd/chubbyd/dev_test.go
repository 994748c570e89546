package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/ports"
)

const (
	playReplica = "CHUBBYD_TEST_REPLICA" // in the environment of what dev starts in these tests
	patience    = 2 * time.Minute        // how long to wait for what must happen, on a busy machine
)

// TestMain makes this program also the replica that dev starts in these tests, and a dev that a test can kill.
func TestMain(m *testing.M) {
	sayTimersIfAsked()
	if os.Getenv(playReplica) == "" || len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-test.") {
		if signal.Ignored(syscall.SIGHUP) { // under nohup; with a handler it is as usual for what the tests start, too
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		}
		os.Exit(m.Run())
	}
	if os.Args[1] == "serve" {
		os.Exit(playedReplica(os.Args[3]))
	}
	os.Exit(runCommandLine())
}

// playedReplica serves /readyz as a replica does, of a cell whose master is r1,
// and ends with its standard input or, in an orderly way, by SIGTERM.
func playedReplica(config string) int {
	d := newDraft(config)
	if err := d.readFile(config); err != nil {
		fmt.Println(err)
		return 1
	}
	c := d.replica
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		fmt.Println("time=now level=INFO msg=drained")
		os.Exit(0)
	}()
	for _, m := range c.Members {
		if m.ID != c.ID {
			continue
		}
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"ready":true,"cell":%q,"replica":%q,"master":"r1","master_address":%q,"epoch":7}`, c.Cell, c.ID, c.Members[0].Client)
		})
		l, err := net.Listen("tcp", m.HTTP)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("time=now level=INFO msg=\"not for the console\"")
		fmt.Println("listening")
		fmt.Println(http.Serve(l, handler))
	}
	return 1
}

// freeBase returns a base port whose 30 ports are free until the test ends.
func freeBase(t *testing.T) int {
	t.Helper()
	r := must(ports.Reserve())(t)
	t.Cleanup(func() { _ = r.Close() })
	return r.Base()
}

// running is a dev that runs in this process.
type running struct {
	lines *bufio.Scanner
	stop  context.CancelFunc
	end   chan error
}

func startDev(t *testing.T, o devOptions) *running {
	t.Helper()
	t.Setenv(playReplica, "1")
	noErr(t, o.validate())
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r := &running{lines: bufio.NewScanner(out), stop: cancel, end: make(chan error, 1)}
	go func() {
		err := o.runDev(ctx, in)
		in.Close()
		r.end <- err
	}()
	timer := time.AfterFunc(patience, func() { in.CloseWithError(fmt.Errorf("no such line within %v", patience)) })
	t.Cleanup(func() {
		timer.Stop()
		cancel()
		for r.lines.Scan() { // until dev has ended
		}
	})
	return r
}

// until returns the lines up to the first that holds text.
func (r *running) until(t *testing.T, text string) []string {
	t.Helper()
	var lines []string
	for r.lines.Scan() {
		lines = append(lines, r.lines.Text())
		if strings.Contains(r.lines.Text(), text) {
			return lines
		}
	}
	t.Fatalf("dev never said %q (%v); it said:\n%s", text, r.lines.Err(), strings.Join(lines, "\n"))
	return nil
}

// untilAll reads lines until each text was in one.
func (r *running) untilAll(t *testing.T, texts ...string) {
	t.Helper()
	for len(texts) > 0 {
		if !r.lines.Scan() {
			t.Fatalf("dev never said %q", texts)
		}
		texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(r.lines.Text(), text) })
	}
}

func (r *running) ended(t *testing.T) error {
	t.Helper()
	for r.lines.Scan() {
	}
	return <-r.end
}

func readDevJSON(t *testing.T, dir string) devCell {
	t.Helper()
	raw := must(os.ReadFile(filepath.Join(dir, "dev.json")))(t)
	var c devCell
	noErr(t, json.Unmarshal(raw, &c))
	return c
}

func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

func TestDevRunsAndStopsACell(t *testing.T) {
	dir, base := filepath.Join(t.TempDir(), "a cell"), freeBase(t)
	dev := startDev(t, devOptions{cell: "foo", replicas: 3, data: dir, basePort: base})
	said := strings.Join(dev.until(t, "ready: "), "\n")
	address := func(offset int) string { return "127.0.0.1:" + strconv.Itoa(base+offset) }
	if want := "ready: cell foo, master r1 at " + address(0); !strings.HasSuffix(said, want) {
		t.Errorf("dev said %q, want it to end with %q", said, want)
	}
	steps := dev.until(t, " locks ")
	for _, want := range []string{"http://localhost:" + strconv.Itoa(base+20) + "/\n", "export CHUBBY_CELLS='foo=" + address(0) + ",", "cell status foo", "/ls/foo/demo"} {
		if !strings.Contains(strings.Join(steps, "\n"), want) {
			t.Errorf("the commands to try do not hold %q: %q", want, steps)
		}
	}
	c := readDevJSON(t, dir)
	if c.Cell != "foo" || len(c.Replicas) != 3 {
		t.Fatalf("dev.json holds %+v", c)
	}
	for i, r := range c.Replicas {
		want := devReplica{ID: fmt.Sprintf("r%d", i+1), PID: r.PID, Client: address(i), Raft: address(10 + i), HTTP: address(20 + i)}
		if r != want || gone(r.PID) {
			t.Errorf("dev.json: %+v (gone: %t), want %+v", r, gone(r.PID), want)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "r1", "log"))
	if err != nil || !strings.Contains(string(log), "not for the console") {
		t.Errorf("log of r1: %q, %v", log, err)
	}
	if !strings.Contains(said, "r1  | listening") || strings.Contains(said, "not for the console") {
		t.Errorf("on the console: %q", said)
	}
	dev.stop()
	report(t, dev.ended(t))
	for _, r := range c.Replicas {
		if !gone(r.PID) {
			t.Errorf("%s (pid %d) still runs", r.ID, r.PID)
		}
	}
	if log, err := os.ReadFile(filepath.Join(dir, "r1", "log")); err != nil || !strings.Contains(string(log), "drained") {
		t.Errorf("r1 was not asked to stop: %q, %v", log, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "dev.json")); err == nil {
		t.Error("dev.json still names processes that are gone")
	}
}

func TestDevRestartsWhatDied(t *testing.T) {
	dir := t.TempDir()
	dev := startDev(t, devOptions{cell: "local", replicas: 3, data: dir, basePort: freeBase(t)})
	dev.untilAll(t, "ready: ", "r1  pid", "r2  pid", "r3  pid")
	before := readDevJSON(t, dir).Replicas[1].PID
	noErr(t, syscall.Kill(before, syscall.SIGKILL))
	dev.until(t, "r2  died (signal: killed); starting it again in 2s")
	said := dev.until(t, "r2  pid ")
	after := readDevJSON(t, dir).Replicas[1].PID
	if after == before || gone(after) || !strings.Contains(said[len(said)-1], strconv.Itoa(after)) {
		t.Errorf("pid %d before, %d after; dev said %q", before, after, said)
	}
}

func TestDevNoRestart(t *testing.T) {
	dir := t.TempDir()
	dev := startDev(t, devOptions{cell: "local", replicas: 1, data: dir, basePort: freeBase(t), noRestart: true})
	dev.until(t, "ready: ")
	noErr(t, syscall.Kill(readDevJSON(t, dir).Replicas[0].PID, syscall.SIGKILL))
	dev.until(t, "left dead")
}

// A cell that cannot be started as a whole is not started in part.
func TestDevStartsNothingHalfway(t *testing.T) {
	dir, base := t.TempDir(), freeBase(t)
	o := devOptions{cell: "local", replicas: 3, data: dir, basePort: base}
	taken := "127.0.0.1:" + strconv.Itoa(base+12)
	l := must(net.Listen("tcp", taken))(t)
	dev := startDev(t, o)
	if err := dev.ended(t); err == nil || !strings.Contains(err.Error(), taken) || !strings.Contains(err.Error(), "--base-port") {
		t.Errorf("with %s taken: %v", taken, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "r1.yaml")); err == nil {
		t.Error("something was prepared")
	}
	l.Close()

	first := startDev(t, o) // the directory is free again
	first.until(t, "ready: ")
	second := startDev(t, devOptions{cell: "local", replicas: 3, data: dir, basePort: freeBase(t)})
	if err := second.ended(t); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--data") {
		t.Errorf("with a directory in use: %v", err)
	}
	first.stop()
	report(t, first.ended(t))

	o.replicas = 5
	if err := startDev(t, o).ended(t); err == nil || !strings.Contains(err.Error(), "holds cell local with 3 replicas") {
		t.Errorf("with the directory of another cell: %v", err)
	}
}

// When dev ends, in any way, all replicas end, even one that is stopped.
func TestKilledDevLeavesNothing(t *testing.T) {
	dir, base := t.TempDir(), freeBase(t)
	cmd := exec.Command(os.Args[0], "dev", "--replicas", "3", "--data", dir, "--base-port", strconv.Itoa(base))
	cmd.Env = append(os.Environ(), playReplica+"=1")
	out := must(cmd.StdoutPipe())(t)
	noErr(t, cmd.Start())
	dev := &running{lines: bufio.NewScanner(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	dev.untilAll(t, "(insecure-principals)", "r1  | listening", "r2  | listening", "r3  | listening")
	c := readDevJSON(t, dir)
	var connections []net.Conn // which end with the processes
	for _, r := range c.Replicas {
		conn := must(net.Dial("tcp", r.HTTP))(t)
		defer conn.Close()
		connections = append(connections, conn)
	}
	noErr(t, syscall.Kill(c.Replicas[2].PID, syscall.SIGSTOP))
	noErr(t, cmd.Process.Kill())
	for i, conn := range connections {
		noErr(t, conn.SetReadDeadline(time.Now().Add(patience)))
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("%s outlived dev: %v", c.Replicas[i].ID, err)
			_ = syscall.Kill(c.Replicas[i].PID, syscall.SIGKILL)
		}
	}
	_ = cmd.Wait() // killed, as intended
}

// A terminal that is closed asks for an orderly end.
func TestClosedTerminalStopsDev(t *testing.T) {
	dir, base := t.TempDir(), freeBase(t)
	cmd := exec.Command(os.Args[0], "dev", "--replicas", "1", "--data", dir, "--base-port", strconv.Itoa(base))
	cmd.Env = append(os.Environ(), playReplica+"=1")
	out := must(cmd.StdoutPipe())(t)
	noErr(t, cmd.Start())
	dev := &running{lines: bufio.NewScanner(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	dev.untilAll(t, "(insecure-principals)", "r1  | listening")
	noErr(t, cmd.Process.Signal(syscall.SIGHUP))
	if err := cmd.Wait(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "dev.json")); err == nil {
		t.Error("dev.json still names processes that are gone")
	}
}

func TestReplicaLogStaysBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	log := must(openReplicaLog("r1", name, &console{out: io.Discard}, func() bool { return true }))(t)
	line := []byte("time=now level=INFO msg=" + strings.Repeat("x", 100_000) + "\n")
	for range 3 * logFileBytes / len(line) {
		if n, err := log.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	noErr(t, log.Close())
	for file, least := range map[string]int64{name: 1, name + ".1": logFileBytes / 2} {
		info, err := os.Stat(file)
		if err != nil || info.Size() > logFileBytes || info.Size() < least {
			t.Errorf("%s: %v, %v", file, info.Size(), err)
		}
	}
}

func TestWhatIsWorthSeeing(t *testing.T) {
	for _, c := range []struct {
		line               string
		healthy, unhealthy bool // whether the console shows the line in a healthy cell, and otherwise
	}{
		{"time=1 level=INFO msg=x", false, false},
		{"time=1 level=WARN msg=x", true, false},
		{"time=1 level=ERROR msg=x", true, false},
		{"panic: what nobody thought of", true, true},
		{"chubbyd: start replica r1: the disk is full", true, true},
		{"", false, false},
	} {
		if got := isForConsole([]byte(c.line), true); got != c.healthy {
			t.Errorf("healthy, %q: %t", c.line, got)
		}
		if got := isForConsole([]byte(c.line), false); got != c.unhealthy {
			t.Errorf("not healthy, %q: %t", c.line, got)
		}
	}
}

// All replicas of dev are on one disk, and none of them ends because that takes some seconds.
func TestDevIsPatientWithItsDisk(t *testing.T) {
	c := newDevCell("main", t.TempDir(), 3, 7421)
	noErr(t, c.writeConfigs())
	name := c.Replicas[0].configFile()
	text := must(os.ReadFile(name))(t)
	d := newDraft(name)
	d.readYAML(name, text)
	if problems := d.validate(); len(problems) > 0 || d.settings.replica.DiskStall < 10*cell.DefaultDiskStall {
		t.Errorf("an operation on the disk may take %v; %v", d.settings.replica.DiskStall, problems)
	}
}
