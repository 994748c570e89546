package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const domain = ".example.org"

// desk is the machine that the pages call yours.
const desk = "desk"

// A host has namespaces of its own for processes, mounts, its name and the network, and none of them has a name: they
// end with the process that holds them, whatever ends this program. So two runs at once do not meet.
type host struct {
	name  string
	dir   string // what it has of its own: etc, var and others
	init  *exec.Cmd
	held  io.Closer
	lives bool
}

type world struct {
	dir    string // of this run
	bin    string // the directory of the binaries
	units  string // that of the unit
	exe    string // this program
	wire   *host  // the bridge between the hosts
	hosts  map[string]*host
	echo   bool
	closed bool
}

// own are the directories that each host has for itself, with where they are in dir.
func own() map[string]string {
	return map[string]string{"etc": "/etc", "var": "/var", "bin": "/usr/local/bin", "root": "/root", "home": "/home", "tmp": "/tmp"}
}

func hostNames() []string {
	return []string{desk, "chubby1", "chubby2", "chubby3", "chubby4"}
}

// newWorld makes the hosts and the network between them.
func newWorld(bin, units string) (*world, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "chubby-pages-")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, bin: bin, units: units, exe: exe, hosts: map[string]*host{}}
	if err := w.build(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) build() error {
	if err := w.writeStandIns(); err != nil {
		return err
	}
	var err error
	if w.wire, err = w.hold("wire"); err != nil {
		return err
	}
	if err := w.wire.run("ip link set lo up; ip link add bridge type bridge; ip link set bridge up"); err != nil {
		return err
	}
	for i, name := range hostNames() {
		h, err := w.hold(name)
		if err != nil {
			return err
		}
		w.hosts[name] = h
		if err := w.connect(h, i+1); err != nil {
			return err
		}
	}
	return nil
}

// hold makes a host, whose first process is this program.
func (w *world) hold(name string) (*host, error) {
	h := &host{name: name, dir: filepath.Join(w.dir, name)}
	for sub := range own() {
		if err := os.MkdirAll(filepath.Join(h.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	if err := shell("cp -a /etc/. " + h.dir + "/etc && cd " + h.dir + "/var && mkdir lib log backups mail tmp spool cache"); err != nil {
		return nil, err
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n")
	for i, other := range hostNames() {
		fmt.Fprintf(&hosts, "10.0.0.%d %s%s %s\n", i+1, other, domain, other)
	}
	if err := os.WriteFile(h.dir+"/etc/hosts", []byte(hosts.String()), 0o644); err != nil {
		return nil, err
	}
	h.init = exec.Command(w.exe, "hold", name, w.dir)
	h.init.Stderr = os.Stderr
	h.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
		Setsid:     true,
	}
	if h.held, _ = h.init.StdinPipe(); h.held == nil {
		return nil, errors.New("no pipe")
	}
	out, err := h.init.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.init.Start(); err != nil {
		return nil, fmt.Errorf("namespaces of %s: %w", name, err)
	}
	h.lives = true
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("%s did not begin: %q, %w", name, line, err)
	}
	return h, nil
}

// holdHost is the first process of a host. It ends when its standard input does, which is when the program that made it ends,
// and the kernel ends all others of the host then.
func holdHost(name, dir string) error {
	var setup strings.Builder
	setup.WriteString("mount --make-rprivate / && mount -t proc proc /proc && hostname " + name + domain + "\n")
	if name == desk { // it copies files to the other hosts
		setup.WriteString("mount --bind " + dir + " /mnt\n")
	}
	setup.WriteString("mount --bind " + dir + "/standins /usr/local/sbin\n")
	for sub, where := range own() {
		if where != "/tmp" {
			setup.WriteString("mkdir -p " + where + " && mount --bind " + filepath.Join(dir, name, sub) + " " + where + "\n")
		}
	}
	setup.WriteString("mount --bind " + filepath.Join(dir, name, "tmp") + " /tmp\n") // the last: it may hide dir
	if err := shell(setup.String()); err != nil {
		return err
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var reaper sync.WaitGroup
	reaper.Go(func() {
		for range children {
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	})
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	signal.Stop(children)
	close(children)
	reaper.Wait()
	return err
}

// connect gives a host its interface, at the bridge.
func (w *world) connect(h *host, i int) error {
	err := w.wire.run(fmt.Sprintf("ip link add port%d type veth peer name eth0 netns /proc/%d/ns/net && ip link set port%d master bridge up",
		i, h.init.Process.Pid, i))
	if err != nil {
		return err
	}
	return h.run(fmt.Sprintf("ip link set lo up && ip addr add 10.0.0.%d/24 dev eth0 && ip link set eth0 up", i))
}

// run executes commands in the network of a host, with the files and processes of this machine.
func (h *host) run(script string) error {
	return command(exec.Command("nsenter", "--target", fmt.Sprint(h.init.Process.Pid), "--net", "--", "sh", "-ec", script))
}

func shell(script string) error { return command(exec.Command("sh", "-ec", script)) }

func command(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// kill ends a host as a power failure would, and takes its disks.
func (w *world) kill(name string) error {
	h := w.hosts[name]
	h.end()
	return os.RemoveAll(h.dir)
}

func (h *host) end() {
	if h == nil || !h.lives {
		return
	}
	h.lives = false
	_ = h.init.Process.Kill()
	_ = h.held.Close()
	_ = h.init.Wait()
}

// close ends every host. Their namespaces and mounts end with them.
func (w *world) close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	for _, h := range w.hosts {
		h.end()
	}
	w.wire.end()
	return os.RemoveAll(w.dir)
}

// transcript is what a block printed so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// session is how a person types a block: the directory and the variables are those of the block before.
const session = `set -eo pipefail
cd
if [ -e ~/.session ]; then . ~/.session; fi
%s
{ export -p; declare -p | grep '^declare -- [a-z]' || true; printf 'cd %%q\n' "$PWD"; } >~/.session
`

// typed runs a block on a host, and returns what it prints. The block is ended when it has printed what enough asks for, if it
// does not end by itself, as one that follows a log.
func (w *world) typed(ctx context.Context, name, script string, follows bool, enough func(string) bool) (string, error) {
	h := w.hosts[name]
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", fmt.Sprint(h.init.Process.Pid), "--mount", "--net", "--pid", "--uts", "--", //nolint:gosec // that is its task
		"bash", "-c", fmt.Sprintf(session, script))
	cmd.Env = []string{"HOME=/root", "USER=root", "LANG=C.UTF-8", "NO_COLOR=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out transcript
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return out.String(), err
		case <-look.C:
			if follows && enough(out.String()) {
				cancel()
				<-ended
				return out.String(), nil
			}
		}
	}
}
