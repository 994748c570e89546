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
	at      place
	members *group
	ports   *ports.Range
	relays  *relays
	servers []string // their client addresses, in the order of members
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
	var known []string // where others reach the ports of the leader, and then of elections, of each
	if z.relays, known, err = z.at.relay(addresses[members:]); err != nil {
		return errors.Join(err, z.Stop())
	}
	var commands [][]string
	for i := range members {
		var cluster strings.Builder
		for j := range members {
			at := known
			if j == i {
				at = addresses[members:] // where it listens
			}
			_, election, err := net.SplitHostPort(at[members+j])
			if err != nil {
				return errors.Join(err, z.Stop())
			}
			fmt.Fprintf(&cluster, "server.%d=%s:%s\n", j+1, at[j], election)
		}
		command, err := z.writeServer(filepath.Join(dir, fmt.Sprintf("z%d", i+1)), i, cluster.String())
		if err != nil {
			return errors.Join(err, z.Stop())
		}
		commands = append(commands, command)
	}
	if z.members, err = startGroup(ctx, dir, "zookeeper", z.at.Sync, commands); err != nil {
		return errors.Join(err, z.Stop())
	}
	if err := z.awaitAll(ctx); err != nil {
		return errors.Join(err, z.Stop())
	}
	if err := z.prepare(ctx); err != nil {
		return errors.Join(err, z.Stop())
	}
	return nil
}

// writeServer writes the files of one server, with the limits of the sample configuration, and returns its command. It syncs
// each write to disk, as it does by default.
func (z *zookeeper) writeServer(dir string, i int, cluster string) ([]string, error) {
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(z.servers[i])
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	return []string{
		"java", zookeeperHeap, "-Dzookeeper.forceSync=yes", "-cp", dir + string(filepath.ListSeparator) + zookeeperJar,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"),
	}, nil
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
			case <-z.members.gone:
				return fmt.Errorf("a server of ZooKeeper ended: %w\n%s", errors.Join(z.members.err, io.ErrUnexpectedEOF), z.members.tail())
			case <-ctx.Done():
				return fmt.Errorf("ZooKeeper's server %d is not ready: %w\n%s", i+1, context.Cause(ctx), z.members.tail())
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

func (z *zookeeper) Processes() []int { return []int{z.members.pid()} }

func (z *zookeeper) Stop() error {
	err := errors.Join(z.members.stop(), z.relays.close(), z.ports.Close())
	z.members, z.relays, z.servers, z.ports = nil, nil, nil, nil
	return err
}

func (z *zookeeper) KillLeader(ctx context.Context) error {
	i, _, err := z.leader(ctx)
	if err != nil {
		return err
	}
	return z.members.kill(i)
}
