package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/internal/ports"
	"github.com/go-zookeeper/zk"
)

// zookeeperJar is where Debian's package puts the server. Its manifest names the other jars.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// zookeeperHeap bounds the heap of each of the five processes. What a row stores is far less.
const zookeeperHeap = "-Xmx256m"

// zookeeper is five servers of the ZooKeeper that the system has installed.
type zookeeper struct {
	children []*child
	ports    *ports.Range
	servers  []string // their client addresses, in the order of children
}

// checkZookeeper returns an error that says what to install.
func checkZookeeper() error {
	_, javaErr := exec.LookPath("java")
	_, jarErr := os.Stat(zookeeperJar)
	if err := errors.Join(javaErr, jarErr); err != nil {
		return fmt.Errorf("ZooKeeper is not installed; on Debian: apt install --no-install-recommends zookeeper default-jre-headless\n%w", err)
	}
	return nil
}

func (z *zookeeper) Version() string {
	jars, err := filepath.Glob(strings.TrimSuffix(zookeeperJar, ".jar") + "-[0-9]*.jar") // the same jar, under a name with the version
	if err != nil || len(jars) != 1 {
		return "ZooKeeper of unknown version"
	}
	return "ZooKeeper " + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "zookeeper-"), ".jar")
}

func (z *zookeeper) Start(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not up within a minute"))
	defer cancel()
	var err error
	if z.ports, err = ports.Reserve(); err != nil {
		return err
	}
	addresses := z.ports.Addresses(3 * members)
	z.servers = addresses[:members]
	var cluster strings.Builder
	for i := range members {
		_, election, err := net.SplitHostPort(addresses[2*members+i])
		if err != nil {
			return err
		}
		fmt.Fprintf(&cluster, "server.%d=%s:%s\n", i+1, addresses[members+i], election)
	}
	for i := range members {
		if err := z.startServer(filepath.Join(dir, fmt.Sprintf("z%d", i+1)), i, cluster.String()); err != nil {
			return errors.Join(err, z.Stop())
		}
	}
	if err := z.awaitAll(ctx); err != nil {
		return errors.Join(err, z.Stop())
	}
	if err := z.prepare(ctx); err != nil {
		return errors.Join(err, z.Stop())
	}
	return nil
}

// startServer starts one server with the limits of the sample configuration. It syncs each write to
// disk, as it does by default.
func (z *zookeeper) startServer(dir string, i int, cluster string) error {
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(z.servers[i])
	if err != nil {
		return err
	}
	settings := fmt.Sprintf(`dataDir=%s
clientPortAddress=127.0.0.1
clientPort=%s
tickTime=2000
initLimit=10
syncLimit=5
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
%s`, filepath.Join(dir, "data"), port, cluster)
	logging := "log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.stderr.Target=System.err\nlog4j.appender.stderr.layout=org.apache.log4j.SimpleLayout\n"
	for name, text := range map[string]string{"zoo.cfg": settings, "log4j.properties": logging, "data/myid": strconv.Itoa(i + 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	c, err := startChild(dir, "zookeeper", nil, keepCommand, "java", zookeeperHeap, "-Dzookeeper.forceSync=yes",
		"-cp", dir+string(filepath.ListSeparator)+zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
	if err == nil {
		z.children = append(z.children, c)
	}
	return err
}

// awaitAll waits until every server follows or leads.
func (z *zookeeper) awaitAll(ctx context.Context) error {
	for i, server := range z.servers {
		for {
			status, err := zookeeperStatus(ctx, server)
			if err == nil && status.mode != "" {
				break
			}
			select {
			case <-z.children[i].gone:
				return fmt.Errorf("ZooKeeper's server %d ended: %w\n%s", i+1, errors.Join(z.children[i].err, io.ErrUnexpectedEOF), z.children[i].tail())
			case <-ctx.Done():
				return fmt.Errorf("ZooKeeper's server %d is not ready: %w\n%s", i+1, context.Cause(ctx), z.children[i].tail())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// zookeeperState is what a server says of itself.
type zookeeperState struct {
	mode  string // leader or follower; empty while it is neither
	epoch uint64
}

// zookeeperStatus asks a server with the command "srvr".
func zookeeperStatus(ctx context.Context, server string) (state zookeeperState, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
	if err != nil {
		return state, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return state, err
		}
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return state, err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "Mode":
			state.mode = value
		case "Zxid": // the epoch is its upper half
			zxid, err := strconv.ParseUint(value, 0, 64)
			if err != nil {
				return state, fmt.Errorf("ZooKeeper at %s: %w", server, err)
			}
			state.epoch = zxid >> 32
		}
	}
	return state, lines.Err()
}

// leader returns the index of the server that leads.
func (z *zookeeper) leader(ctx context.Context) (int, zookeeperState, error) {
	var errs []error
	for i, server := range z.servers {
		state, err := zookeeperStatus(ctx, server)
		if err == nil && state.mode == "leader" {
			return i, state, nil
		}
		errs = append(errs, err)
	}
	return 0, zookeeperState{}, fmt.Errorf("no ZooKeeper server leads: %w", errors.Join(errs...))
}

// prepare makes the directories, so that no client finds them missing.
func (z *zookeeper) prepare(ctx context.Context) error {
	conn, err := z.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.Close)() // its calls take no context
	for _, path := range []string{"/bench", "/bench/lock", "/bench/lock/shared", "/bench/file", zookeeperWatched} {
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return fmt.Errorf("create %s: %w", path, err)
		}
	}
	return nil
}

// dial opens a connection with a session of twelve seconds, as long as Chubby's lease.
func (z *zookeeper) dial() (*zk.Conn, error) {
	conn, events, err := zk.Connect(z.servers, 12*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err == nil {
		go drain(events) // ends when the connection is closed
	}
	return conn, err
}

// quiet drops what the client library logs.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// drain receives until the channel is closed.
func drain[T any](events <-chan T) {
	for range events {
	}
}

func (z *zookeeper) Term(ctx context.Context) (uint64, error) {
	_, state, err := z.leader(ctx)
	return state.epoch, err
}

func (z *zookeeper) Processes() []int { return pids(z.children) }

func (z *zookeeper) Stop() error {
	err := errors.Join(stopAll(z.children), z.ports.Close())
	z.children, z.servers, z.ports = nil, nil, nil
	return err
}

// KillLeader kills the Java process; the keeper, its parent, then ends too.
func (z *zookeeper) KillLeader(ctx context.Context) error {
	i, _, err := z.leader(ctx)
	if err != nil {
		return err
	}
	java := childrenOf(z.children[i].pid())
	if len(java) != 1 {
		return fmt.Errorf("ZooKeeper's server %d has %d processes, want one", i+1, len(java))
	}
	return syscall.Kill(java[0], syscall.SIGKILL)
}
