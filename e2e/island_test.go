package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// island is a network of its own for processes. They reach the cell at the addresses that it has outside, until the
// island is cut off: then nothing goes in or out, and no connection is closed, as when a cable is pulled.
type island struct {
	t     *testing.T
	calls chan func() // functions to run in the island's network
	wires sync.WaitGroup

	mu    sync.Mutex // guards what follows
	open  chan struct{}
	conns []net.Conn
	ended bool
}

// asRoot runs the test again as root of a user namespace of its own, unless it runs as root already:
// only root may create networks. It reports whether it did, and the test has been run.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := raiseLoopback(); err != nil { // the network may be one that was made below
			t.Fatal(err)
		}
		return false
	}
	again := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-full="+strconv.FormatBool(*full), "-rounds", strconv.Itoa(*rounds))
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := again.CombinedOutput()
	failIf(t, err != nil, "as root of a user namespace: %v; where there are none, this test needs root\n%s", err, out)
	return true
}

// newIsland makes an island with ways to every replica of a cell. It needs root: see asRoot.
func newIsland(t *testing.T, w *world) *island {
	t.Helper()
	i := &island{t: t, calls: make(chan func()), open: make(chan struct{})}
	close(i.open)
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		made <- i.makeNetwork()
		for call := range i.calls {
			call()
		}
	}()
	if err := <-made; err != nil {
		close(i.calls)
		t.Fatalf("make a network: %v", err)
	}
	t.Cleanup(i.end)
	for _, address := range strings.Split(w.servers(), ",") {
		var (
			l   net.Listener
			err error
		)
		i.inside(func() { l, err = net.Listen("tcp", address) })
		noErr(t, err)
		i.wires.Go(func() { i.relay(l, address) })
		t.Cleanup(func() { l.Close() })
	}
	return i
}

// makeNetwork makes the network, with its loopback up, for this thread.
func (i *island) makeNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	return raiseLoopback()
}

// raiseLoopback sets the loopback of this thread's network up, if it is not.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	flags := func(what uintptr) error {
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), what, uintptr(unsafe.Pointer(request))); e != 0 {
			return fmt.Errorf("the flags of the loopback: %w", e)
		}
		return nil
	}
	if err := flags(unix.SIOCGIFFLAGS); err != nil || request.Uint16()&unix.IFF_UP != 0 {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return flags(unix.SIOCSIFFLAGS)
}

// inside runs f in the island's network. Sockets that it makes, and processes that it starts, stay there.
func (i *island) inside(f func()) {
	done := make(chan struct{})
	i.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// spawn starts a program on the island.
func (i *island) spawn(name string, args ...string) *process {
	i.t.Helper()
	return launch(i.t, command(name, args...), i.start)
}

// start starts a command on the island.
func (i *island) start(cmd *exec.Cmd) (err error) {
	i.inside(func() { err = cmd.Start() })
	return err
}

// cut stops all traffic in and out. heal lets it through again, with what was on its way.
func (i *island) cut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open = make(chan struct{})
}

func (i *island) heal() {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.open)
}

// passage waits while the island is cut off.
func (i *island) passage() {
	i.mu.Lock()
	open := i.open
	i.mu.Unlock()
	<-open
}

// relay connects connections to an address inside to the same address outside.
func (i *island) relay(l net.Listener, address string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		i.wires.Go(func() {
			i.passage()
			out, err := net.Dial("tcp", address)
			if err != nil {
				in.Close() // as a replica that is not there would
				return
			}
			if !i.keep(in, out) {
				return
			}
			i.wires.Go(func() { i.carry(in, out) })
			i.carry(out, in)
		})
	}
}

// carry copies from one connection to another, while the island is not cut off.
func (i *island) carry(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		i.passage()
		if _, e := to.Write(buffer[:n]); e != nil || err != nil {
			_, _ = io.Copy(io.Discard, from) // until it is closed as well
			return
		}
	}
}

// keep notes connections for end. It reports false if end was called before.
func (i *island) keep(conns ...net.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns = append(i.conns, conns...)
	if i.ended {
		for _, c := range conns {
			c.Close()
		}
	}
	return !i.ended
}

// end closes everything and waits for it; the listeners are closed by then.
func (i *island) end() {
	i.mu.Lock()
	i.ended = true
	for _, c := range i.conns {
		c.Close()
	}
	select {
	case <-i.open:
	default:
		close(i.open)
	}
	i.mu.Unlock()
	i.wires.Wait()
	close(i.calls)
}
