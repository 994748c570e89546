package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// listenHere listens where a process does, and returns the relays before it and the address of the one.
func listenHere(t *testing.T, trip time.Duration) (net.Listener, *relays, string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(thisHost, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r, known, err := place{Trip: trip}.relay([]string{listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	return listener, r, known[0]
}

// accept returns the first connection over which something comes, and its first byte. A relay looks whether somebody listens.
func accept(t *testing.T, listener net.Listener) (net.Conn, []byte) {
	t.Helper()
	for {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err == nil {
			return conn, first
		}
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// What is sent arrives half a round trip later, as it was sent, and much of it at once: its rate has no bound. What comes
// first over a connection takes a round trip longer, in which the two would have connected.
func TestRelayDelaysAndKeepsOrder(t *testing.T) {
	t.Parallel()
	const trip = 100 * time.Millisecond
	listener, _, address := listenHere(t, trip)
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	began := time.Now()
	near := dial(t, address)
	go func() { // ends with the connection
		_, _ = near.Write(sent)
		_ = near.(*net.TCPConn).CloseWrite()
	}()
	far, first := accept(t, listener)
	came := time.Since(began)
	rest, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(append(first, rest...), sent) {
		t.Fatalf("%d bytes came, and not the %d that were sent (%v)", 1+len(rest), len(sent), err)
	}
	if all := time.Since(began); came < trip*3/2 || all > 20*trip {
		t.Errorf("the first byte came after %v, want %v or more; all came after %v", came, trip*3/2, all)
	}
	again := time.Now()
	if _, err := far.Write(first); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, first); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(again); took < trip/2 || took > trip*3/2 {
		t.Errorf("an answer took %v, want %v", took, trip/2)
	}
}

// A process that was killed has its connections ended and refused, also behind a relay, until another listens there.
func TestRelayRefusesForTheDead(t *testing.T) {
	t.Parallel()
	listener, _, address := listenHere(t, 10*time.Millisecond)
	near := dial(t, address)
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	far, _ := accept(t, listener)
	if err := errors.Join(listener.Close(), far.Close()); err != nil {
		t.Fatal(err)
	}
	if n, err := near.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came from nobody", n)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, conn) // until it is ended
			_ = conn.Close()
		}
		if time.Now().After(deadline) {
			t.Fatal("the relay of a process that is gone does not refuse")
		}
	}
	back, err := net.Listen("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it refuses also when somebody listens again:", err)
		}
	}
}

// Without anything to delay nothing stands between processes.
func TestNearProcessesHaveNoRelays(t *testing.T) {
	r, known, err := place{Sync: time.Second}.relay([]string{"127.0.0.1:1"})
	if r != nil || err != nil || len(known) != 1 || known[0] != "127.0.0.1:1" || r.close() != nil {
		t.Errorf("relays %v, addresses %v, %v", r, known, err)
	}
}

// A sync takes as much longer as was asked for, and a place is as it says.
func TestSurvey(t *testing.T) {
	t.Parallel()
	for _, p := range []place{{}, {Sync: 30 * time.Millisecond}, {Trip: 30 * time.Millisecond}} {
		if p.Sync > 0 && runtime.GOOS != "linux" {
			continue
		}
		s, err := survey(t.Context(), p, t.TempDir())
		if err != nil {
			t.Fatal(p, err)
		}
		if s.Fsync < p.Sync || s.Echo < p.Trip || p.Trip == 0 && s.Echo > 25*time.Millisecond {
			t.Errorf("%s: an fsync takes %v, and there and back %v", p, s.Fsync, s.Echo)
		}
	}
}

// Of several programs of one keeper one can be killed, and the others end with the bench; if one ends by itself all do.
func TestGroup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stay := []string{"sleep", "600"}
	g, err := startGroup(ctx, t.TempDir(), "group", 0, [][]string{stay, stay, stay})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.kill(1); err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(g.ids[0], 0) != nil || syscall.Kill(g.ids[2], 0) != nil {
		t.Error("the others have ended too")
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	for _, id := range g.ids {
		if syscall.Kill(id, 0) == nil {
			t.Errorf("process %d lives on", id)
		}
	}
	g, err = startGroup(ctx, t.TempDir(), "group", 0, [][]string{stay, {"false"}})
	if err != nil {
		t.Fatal(err)
	}
	<-g.gone
	if g.err == nil || syscall.Kill(g.ids[0], 0) == nil {
		t.Errorf("one failed, the keeper ended with %v, and the other goes on", g.err)
	}
}

// surveyedExample has a system that is ahead at +20 ms by a half, and behind when it is 20 ms apart.
func surveyedExample() *record {
	r := newRecord(machine{CPU: "abacus", CPUs: 2}, options{rounds: 1, allEtcd: true})
	r.addSystem("chubby", "Chubby abc")
	r.addSystem("etcd", "etcd v0")
	slow, far := place{Sync: 20 * time.Millisecond}, place{Trip: 20 * time.Millisecond}
	rates := map[place]float64{{}: 400, slow: 300, far: 150}
	for _, at := range []place{{}, slow, far} {
		rate := rates[at]
		r.Places = append(r.Places, surveyed{at, time.Millisecond, time.Microsecond})
		for _, k := range []key{{"lock+unlock", 1, at}, {"write 256 B", 64, at}, {oneLock, 16, at}} {
			r.add(k, "chubby", sample{Rate: rate, P50: time.Millisecond})
			r.add(k, "etcd", sample{Rate: 200, P50: 2 * time.Millisecond})
		}
		r.add(key{failover, 4, at}, "chubby", sampleOf([]time.Duration{time.Second}))
		r.add(key{failover, 4, at}, "etcd", sampleOf([]time.Duration{3 * time.Second}))
	}
	return r
}

// The page says which aims are reached, and the command fails for those that are not, also when it reads a results file.
func TestDisksPage(t *testing.T) {
	dir := t.TempDir()
	first, again := filepath.Join(dir, "disks.md"), filepath.Join(dir, "copy.md")
	err := surveyedExample().reportDisks(options{page: first}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "one lock, 16, fsync +20ms: 1.50 times, want at least 2") {
		t.Errorf("no word of an aim that was missed: %v", err)
	}
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| write 256 B, 64, fsync +20ms | 300 | 1 ms | 200 | 2 ms | 1.50 |",
		"| longest gap at kill -9, 4, 20ms apart | - | 1 s | - | 3 s | 3.00 |",
		"by more than a twentieth | 0.95 | 1.50 | lock+unlock, 1, fsync +20ms | yes |",
		"| 20 ms apart: no row below etcd | 1 | 0.75 | lock+unlock, 1, 20ms apart | **no** |",
		"| write 256 B, 64 | 400 | 1 ms | 200 | 2 ms | 2.00 |", "| fsync +20ms | 1 ms | 1 µs |", "(disks/gaps.svg)", "Not every aim is reached",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for _, f := range diskFigures() {
		if svg, err := os.ReadFile(filepath.Join(dir, "disks", f.file)); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
			t.Errorf("%s is no plot (%v)", f.file, err)
		}
	}
	err = run([]string{"-disks", "-from", filepath.Join(dir, "disks.json"), "-docs", again}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "an aim is missed") {
		t.Errorf("from the results file no aim is missed: %v", err)
	}
	second, err := os.ReadFile(again)
	if err != nil || strings.ReplaceAll(string(second), "copy", "disks") != string(text) {
		t.Errorf("the page from the results file differs (%v):\n%s", err, second)
	}
}

// Flags that cannot be are refused with what can.
func TestDisksFlags(t *testing.T) {
	if _, err := parseDelays("2ms,-1ms"); err == nil || !strings.Contains(err.Error(), `"-1ms": want durations from 0 to 1s`) {
		t.Error(err)
	}
	if _, err := parseDelays("20"); err == nil || !strings.Contains(err.Error(), "such as 2ms") {
		t.Error(err)
	}
	if list, err := parseDelays("0,1s"); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	for want, args := range map[string][]string{
		"-disks measures systems of five": {"-systems", "redis"},
		"want at least one place":         {"-syncs", "", "-trips", ""},
	} {
		if _, err := parseOptions(append([]string{"-disks", "-dir", t.TempDir()}, args...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	list := places(options{disks: true, syncs: []time.Duration{0, 1}, trips: []time.Duration{0, 2}})
	if len(list) != 3 || list[0] != (place{}) || list[2].Trip != 2 {
		t.Errorf("places %v: want this machine once", list)
	}
}
