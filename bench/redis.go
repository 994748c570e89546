package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chubbylock/chubby/internal/ports"
	"github.com/redis/go-redis/v9"
)

// redisServer is the program of Debian's package.
const redisServer = "redis-server"

// redisNode is one Redis that syncs each write to disk. Its lock is the one that people take instead
// of a lock service: fast, and unsafe. It is lost with its one process, it ends while its holder
// believes to have it, it gives no token by which a server could tell, and it has no queue.
type redisNode struct {
	child   *child
	ports   *ports.Range
	address string
}

// checkRedis returns an error that says what to install.
func checkRedis() error {
	if _, err := exec.LookPath(redisServer); err != nil {
		return fmt.Errorf("Redis is not installed; on Debian: apt install redis-server\n%w", err)
	}
	return nil
}

func (r *redisNode) Version() string {
	out, err := exec.Command(redisServer, "--version").Output()
	if err == nil {
		for field := range strings.FieldsSeq(string(out)) {
			if version, ok := strings.CutPrefix(field, "v="); ok {
				return "Redis " + version
			}
		}
	}
	return "Redis of unknown version"
}

func (r *redisNode) Start(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not up within a minute"))
	defer cancel()
	var err error
	if r.ports, err = ports.Reserve(); err != nil {
		return err
	}
	r.address = r.ports.Address(0)
	host, port, err := net.SplitHostPort(r.address)
	if err != nil {
		return errors.Join(err, r.Stop())
	}
	data := filepath.Join(dir, "redis")
	if err := os.Mkdir(data, 0o755); err != nil {
		return errors.Join(err, r.Stop())
	}
	r.child, err = startChild(dir, "redis", nil, keepCommand, redisServer, "--bind", host, "--port", port, "--dir", data,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no", "--loglevel", "warning")
	if err != nil {
		return errors.Join(err, r.Stop())
	}
	if err := r.await(ctx); err != nil {
		return errors.Join(err, r.Stop())
	}
	return nil
}

// await waits until the server answers.
func (r *redisNode) await(ctx context.Context) (err error) {
	c := r.dial()
	defer func() { err = errors.Join(err, c.Close()) }()
	for {
		if err := c.Ping(ctx).Err(); err == nil {
			return nil
		}
		select {
		case <-r.child.gone:
			return fmt.Errorf("Redis ended: %w\n%s", errors.Join(r.child.err, io.ErrUnexpectedEOF), r.child.tail())
		case <-ctx.Done():
			return fmt.Errorf("Redis is not ready: %w\n%s", context.Cause(ctx), r.child.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dial returns a client that has one connection.
func (r *redisNode) dial() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.address, PoolSize: 1, DisableIdentity: true})
}

// Term is always 1: there is one server, and nothing takes over from it.
func (r *redisNode) Term(context.Context) (uint64, error) { return 1, nil }

func (r *redisNode) Processes() []int { return []int{r.child.pid()} }

func (r *redisNode) Stop() error {
	var err error
	if r.child != nil {
		err = r.child.stop()
	}
	err = errors.Join(err, r.ports.Close())
	r.child, r.ports = nil, nil
	return err
}

func (r *redisNode) Connect(ctx context.Context, i int) (worker, error) {
	w := &redisWorker{
		client: r.dial(),
		release: redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0`),
		keys: [locks]string{own: fmt.Sprintf("lock:%d", i), shared: "lock:shared"},
		key:  fmt.Sprintf("file:%d", i), value: string(bytes.Repeat([]byte{'x'}, contents)),
	}
	if err := w.Write(ctx); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	return w, nil
}

type redisWorker struct {
	client     *redis.Client
	release    *redis.Script // deletes a lock only if it still has the holder's value
	keys       [locks]string
	held       string // the value of the lock that the worker has
	key, value string
}

// Lock is the usual recipe: SET NX PX with a random value, tried again after a random delay, whose
// bound doubles up to 64 ms.
func (w *redisWorker) Lock(ctx context.Context, l lock) error {
	w.held = crand.Text()
	for delay := time.Millisecond; ; delay = min(2*delay, 64*time.Millisecond) {
		err := w.client.SetArgs(ctx, w.keys[l], w.held, redis.SetArgs{Mode: "NX", TTL: 12 * time.Second}).Err()
		if err == nil || !errors.Is(err, redis.Nil) {
			return err
		}
		if err := pause(ctx, delay); err != nil {
			return err
		}
	}
}

func (w *redisWorker) Unlock(ctx context.Context, l lock) error {
	deleted, err := w.release.Run(ctx, w.client, []string{w.keys[l]}, w.held).Int()
	if err == nil && deleted != 1 {
		err = fmt.Errorf("the lock %s was lost while it was held", w.keys[l])
	}
	return err
}

// pause waits for a random time up to longest.
func pause(ctx context.Context, longest time.Duration) error {
	timer := time.NewTimer(rand.N(longest))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *redisWorker) Write(ctx context.Context) error {
	return w.client.Set(ctx, w.key, w.value, 0).Err()
}

func (w *redisWorker) Read(ctx context.Context) error {
	text, err := w.client.Get(ctx, w.key).Result()
	if err == nil && len(text) != contents {
		err = fmt.Errorf("read %d bytes of %s, not %d", len(text), w.key, contents)
	}
	return err
}

func (w *redisWorker) Close(context.Context) error { return w.client.Close() }
