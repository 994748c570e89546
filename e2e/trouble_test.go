package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A replica whose disk is full ends with a message and no stack trace, and the others go on with
// everything that was acknowledged, also if it is the master. When there is room again and it is started, it catches
// up.
func TestDiskFull(t *testing.T) {
	besideOthers(t)
	for store, c := range map[string]struct {
		size   string // of the small disk
		writes int    // more than fit on it
		leads  bool
	}{
		"boltdb": {"4m", 40, false},
		"wal":    {"68m", 300, true}, // one segment of 64 MiB fits
	} {
		t.Run(store, func(t *testing.T) {
			besideOthers(t)
			w := newWorld(t)
			w.env = []string{"CHUBBYD_LOG_STORE=" + store}
			small := filepath.Join(w.dir, "r2", "data")
			noErr(t, os.MkdirAll(small, 0o700))
			if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "mode=0700,size="+c.size); err != nil {
				t.Fatalf("mount a small file system (this test needs root): %v", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
			w.run("--no-restart")
			if c.leads {
				w.must("cell", "transfer", "--to", "r2")
			}
			w.fillDisk(c.writes)
			noErr(t, syscall.Mount("", small, "", syscall.MS_REMOUNT, "size=512m"), "make room")
			w.serve("r2")
			w.waitHealthy(5) // it catches up by itself
		})
	}
}

// fillDisk writes until the disk of r2 is full, and checks how r2 ends.
func (w *world) fillDisk(writes int) {
	t := w.t
	t.Helper()
	victim := w.replicas()["r2"].PID
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	const files = 40
	var handles [files]*client.Handle
	c := w.client(client.Config{})
	contents := make([]byte, api.MaxContents)
	for i := range writes {
		f := i % files
		if handles[f] == nil {
			handles[f] = w.handle(ctx, c, fmt.Sprintf("/ls/local/f%d", f))
		}
		contents[0] = byte(f)
		if _, err := handles[f].SetContents(ctx, contents); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	w.waitGone(victim)
	said := w.dev.stdout.String() + w.dev.stderr.String()
	if !strings.Contains(said, "no space left") || strings.Contains(said, "goroutine ") || strings.Contains(said, "panic:") {
		t.Errorf("the replica should say that its disk is full, without a trace:\n%s", said)
	}
	for f, h := range handles {
		got, _, err := h.Contents(ctx)
		if err != nil || len(got) != api.MaxContents || got[0] != byte(f) {
			t.Fatalf("file %d was lost: %d bytes, %v", f, len(got), err)
		}
	}
	for id, r := range w.replicas() {
		failIf(t, id != "r2" && syscall.Kill(r.PID, 0) != nil, "%s has ended too", id)
	}
}

// waitGone waits until a process has ended.
func (w *world) waitGone(pid int) {
	w.t.Helper()
	for range 400 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(text, []byte(") Z ")) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("process %d still runs", pid)
}

// A second cell on the same ports, or on the same directory, is refused before
// anything is started; so is a second replica on a directory in use.
func TestTaken(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	again := spawn(t, nil, bin("chubbyd"), "dev", "--data", filepath.Join(t.TempDir(), "other"), "--base-port", fmt.Sprint(w.base))
	if code := again.wait(20 * time.Second); code == 0 || !strings.Contains(again.stderr.String(), fmt.Sprint(w.base)) {
		t.Errorf("taken ports: exit %d, %s", code, &again.stderr)
	}
	again = spawn(t, nil, bin("chubbyd"), "dev", "--data", w.dir, "--base-port", fmt.Sprint(freePorts(t)))
	if code := again.wait(20 * time.Second); code == 0 || !strings.Contains(again.stderr.String(), w.dir) {
		t.Errorf("a directory in use: exit %d, %s", code, &again.stderr)
	}
	text := must(os.ReadFile(filepath.Join(w.dir, "r1.yaml")))(t)
	moved := freePorts(t)
	for i := range 30 {
		text = bytes.ReplaceAll(text, fmt.Appendf(nil, "127.0.0.1:%d\n", w.base+i), fmt.Appendf(nil, "127.0.0.1:%d\n", moved+i))
	}
	config := filepath.Join(t.TempDir(), "second.yaml")
	noErr(t, os.WriteFile(config, text, 0o600))
	second := spawn(t, nil, bin("chubbyd"), "serve", "--config", config)
	if code := second.wait(20 * time.Second); code == 0 || !strings.Contains(second.stderr.String(), filepath.Join(w.dir, "r1")) {
		t.Errorf("a second replica on a directory in use: exit %d, %s", code, &second.stderr)
	}
	w.must("put", w.path("still"), "here")
}

// Garbage on every port disturbs nobody.
func TestGarbage(t *testing.T) {
	besideOthers(t)
	w := sharedWorld(t)
	before := w.status()
	junk := make([]byte, 64<<10)
	must(rand.Read(junk))(t)
	var sending sync.WaitGroup
	for i := range 30 {
		address := fmt.Sprintf("127.0.0.1:%d", w.base+i)
		for _, text := range [][]byte{junk, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), {0}, bytes.Repeat([]byte{0xff}, 1<<10)} {
			sending.Go(func() { sendTo(address, text) })
		}
	}
	sending.Wait()
	w.must("put", w.path("still"), "here")
	after := w.status()
	if after.Epoch != before.Epoch || after.Master != before.Master {
		t.Errorf("garbage changed the master: %s in epoch %d, then %s in %d", before.Master, before.Epoch, after.Master, after.Epoch)
	}
	for id, r := range w.replicas() {
		if err := syscall.Kill(r.PID, 0); err != nil {
			t.Errorf("%s has ended: %v", id, err)
		}
	}
	if said := w.dev.stdout.String() + w.dev.stderr.String(); strings.Contains(said, "panic") {
		t.Errorf("a replica panicked:\n%s", said)
	}
}

// sendTo sends a text to an address, if anybody listens there, and gives it time for an answer.
func sendTo(address string, text []byte) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	conn.Write(text)
	conn.Read(make([]byte, 1<<10))
}

// Ctrl-C of chubbyd dev leaves no process behind, and the data is found again.
func TestDevStops(t *testing.T) {
	besideOthers(t)
	w := start(t)
	w.must("put", "/ls/local/file", "kept")
	pids := w.replicas()
	noErr(t, w.dev.cmd.Process.Signal(os.Interrupt))
	w.dev.exits(t, 20*time.Second, 0, "after Ctrl-C")
	for id, r := range pids {
		failIf(t, syscall.Kill(r.PID, 0) == nil, "%s still runs", id)
	}
	w.run()
	equal(t, w.must("cat", "/ls/local/file"), "kept", "the file says %q")
}

// When chubbyd dev itself is killed, its replicas go with it.
func TestDevKilled(t *testing.T) {
	besideOthers(t)
	w := start(t)
	pids := w.replicas()
	w.kill9(w.dev.cmd.Process.Pid)
	w.dev.wait(10 * time.Second)
	for _, r := range pids {
		w.waitGone(r.PID)
	}
	if out, err := exec.Command("ls", filepath.Join(w.dir, "dev.json")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A bundle for a report, of a cell with certificates, has the log and the configuration of each replica, and nothing that is secret: no
// private key of the cell, no contents of files, no query of a URL. Nobody but operators gets it.
func TestDebugBundleHasNoSecrets(t *testing.T) {
	besideOthers(t)
	w := newWorld(t)
	const contents, query = "s3cret-contents-of-a-file", "s3cret-of-a-query"
	w.env = append(steadyMaster(), "CHUBBYD_TOKEN_KEYS=https://127.0.0.1:1/keys?tenant="+query, "CHUBBYD_TOKEN_ISSUER=test", "CHUBBYD_TOKEN_AUDIENCE=test")
	w.run("--tls", "--replicas", "3")
	tls := filepath.Join(w.dir, "tls")
	if out, err := command(bin("chubbyd"), "certs", "client", "stranger", "--dir", tls).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctl := func(who string, args ...string) (string, error) {
		flags := []string{"--servers", strings.Join(strings.Split(w.servers(), ",")[:3], ","), "--cacert", filepath.Join(tls, "ca.crt"), "--cert", filepath.Join(tls, "client-"+who+".crt"), "--key", filepath.Join(tls, "client-"+who+".key")}
		out, err := command(bin("chubbyctl"), append(flags, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := ctl("dev", "put", w.path("f"), contents); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var text string
	for end := time.Now().Add(patience(time.Minute)); ; time.Sleep(100 * time.Millisecond) { // a replica that has just begun knows no operator yet
		name := filepath.Join(t.TempDir(), "bundle")
		out, err := ctl("dev", "cell", "debug", name, "local")
		if err == nil {
			text = bundleText(t, name)
			break
		}
		stopIf(t, time.Now().After(end), "%v\n%s", err, out)
	}
	for _, want := range []string{"r1/config.txt", "r3/log.txt", "keys?left-out", "tls-key: ", "goroutine profile", "chubby_contents_used_ratio"} {
		failIf(t, !strings.Contains(text, want), "it has no %q", want)
	}
	secrets := map[string]string{"contents": contents, "a query": query}
	for _, pattern := range []string{"*.key", "*/*.key", "*/*/*.key"} {
		names := must(filepath.Glob(filepath.Join(w.dir, pattern)))(t)
		for _, name := range names {
			file, err := os.ReadFile(name)
			if block, _ := pem.Decode(file); err == nil && block != nil {
				whole := base64.StdEncoding.EncodeToString(block.Bytes)
				secrets[name] = whole[len(whole)-40:]
			}
		}
	}
	stopIf(t, len(secrets) < 6, "there are few keys: %v", secrets)
	for what, secret := range secrets {
		failIf(t, strings.Contains(text, secret), "%s is in it", what)
	}
	name := filepath.Join(t.TempDir(), "bundle")
	if out, err := ctl("stranger", "cell", "debug", name, "local"); err == nil || !strings.Contains(out, "0 of 12 parts") {
		t.Errorf("a stranger: %v\n%s", err, out)
	}
}

// bundleText returns the names and texts of all files of a bundle.
func bundleText(t *testing.T, name string) string {
	t.Helper()
	file := must(os.Open(name))(t)
	defer file.Close()
	packed := must(gzip.NewReader(file))(t)
	var all strings.Builder
	archive := tar.NewReader(packed)
	for header, err := archive.Next(); err == nil; header, err = archive.Next() {
		fmt.Fprintf(&all, "== %s\n", header.Name)
		must(io.Copy(&all, archive))(t)
	}
	return all.String()
}
