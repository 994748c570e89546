package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The other processes that this program runs as.
const (
	memberCommand = "etcd-member"
	keepCommand   = "keep"
	andCommand    = ";" // between the programs that one keeper keeps
	fsyncCommand  = "fsync"
	spinCommand   = "spin"

	collectorCommand = "collector"
)

// stopTime is how long a child has to end before it is killed.
const stopTime = 20 * time.Second

// child is a process of the bench. It runs until its standard input ends, so that it never outlives
// the bench.
type child struct {
	name    string
	cmd     *exec.Cmd
	input   io.WriteCloser
	lines   chan string   // of its standard output; closed when that ends
	gone    chan struct{} // closed when the process has ended
	err     error         // how it ended; set before gone is closed
	logPath string
	counted string // the file in which the keeper counts the syncs that it made longer; empty if it makes none so
}

// startChild runs this program again, with more variables in its environment. Its standard error
// goes to a file in dir.
func startChild(dir, name string, env []string, args ...string) (*child, error) {
	return startSlowed(dir, name, env, 0, args...)
}

// startSlowed is startChild of a keeper, which makes each fsync of all that it starts so much longer.
func startSlowed(dir, name string, env []string, longer time.Duration, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	counted := ""
	if longer > 0 {
		counted = filepath.Join(dir, name+".syncs")
		env = append(env, longerVariable+"="+longer.String(), countedVariable+"="+counted)
	}
	c := &child{
		name: name, cmd: exec.Command(self, args...), lines: make(chan string, 64), gone: make(chan struct{}),
		logPath: filepath.Join(dir, name+".log"), counted: counted,
	}
	log, err := os.Create(c.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.cmd.Stderr, c.cmd.Env = log, append(os.Environ(), env...)
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go c.follow(output) // ends with the process; stop waits for it
	return c, nil
}

// follow passes on the lines that the process writes, drops lines that are not read, and waits for
// its end.
func (c *child) follow(output io.Reader) {
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		select {
		case c.lines <- scanner.Text():
		default:
		}
	}
	close(c.lines)
	c.err = c.cmd.Wait()
	close(c.gone)
}

// await waits for a line that begins with prefix and returns it.
func (c *child) await(ctx context.Context, prefix string) (string, error) {
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				<-c.gone
				return "", fmt.Errorf("%s ended before it was ready: %w\n%s", c.name, errors.Join(c.err, io.ErrUnexpectedEOF), c.tail())
			}
			if strings.HasPrefix(line, prefix) {
				return line, nil
			}
		case <-ctx.Done():
			return "", fmt.Errorf("%s is not ready: %w\n%s", c.name, context.Cause(ctx), c.tail())
		}
	}
}

// tail returns the end of what the process wrote to its standard error.
func (c *child) tail() string {
	text, err := os.ReadFile(c.logPath)
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-2000):])
}

// stop asks the process to end, waits, and kills it, and what it has started, if it does not.
func (c *child) stop() error {
	_ = c.input.Close() // the closed pipe is the request, also if it is closed already
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-c.gone:
		return c.checkSyncs()
	case <-timer.C:
	}
	for _, p := range treeOf([]int{c.pid()}) {
		_ = syscall.Kill(p.id, syscall.SIGKILL) // it may have ended meanwhile
	}
	<-c.gone
	return fmt.Errorf("%s did not end within %v and was killed", c.name, stopTime)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// group is several processes that are started and stopped at once, below one keeper.
type group struct {
	*child
	ids []int // of the processes, in the order of their commands
}

// startGroup starts several programs, and waits until all have begun.
func startGroup(ctx context.Context, dir, name string, longer time.Duration, commands [][]string) (*group, error) {
	args := []string{keepCommand}
	for i, command := range commands {
		if i > 0 {
			args = append(args, andCommand)
		}
		args = append(args, command...)
	}
	c, err := startSlowed(dir, name, nil, longer, args...)
	if err != nil {
		return nil, err
	}
	g := &group{child: c}
	for range commands {
		line, err := c.await(ctx, begun)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		id, err := strconv.Atoi(strings.TrimPrefix(line, begun))
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		g.ids = append(g.ids, id)
	}
	return g, nil
}

// kill kills one of the processes; the others go on.
func (g *group) kill(i int) error { return syscall.Kill(g.ids[i], syscall.SIGKILL) }

// stop ends all, also if none was started.
func (g *group) stop() error {
	if g == nil {
		return nil
	}
	return g.child.stop()
}

// inputEnd returns a channel that is closed when standard input ends: the bench is gone, or no
// longer needs this process.
func inputEnd() <-chan struct{} {
	end := make(chan struct{})
	go func() { // ends with standard input, or with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // an error means the end, too
		close(end)
	}()
	return end
}

// longerVariable tells a keeper how much longer each sync is to take, and countedVariable where to write how many there were.
const (
	longerVariable  = "CHUBBY_BENCH_LONGER"
	countedVariable = "CHUBBY_BENCH_COUNTED"
)

// begun begins the line in which a keeper says the number of a process that it has started.
const begun = "process "

// runKeeper runs other programs, and ends them when standard input ends, or when one of them does that was not killed.
func runKeeper(args []string) (err error) {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the bench closes the pipe
	end := inputEnd()
	var running []*exec.Cmd
	var failed error
	ended := make(chan error, len(args)) // more than there are programs
	if longer, err := time.ParseDuration(os.Getenv(longerVariable)); err == nil {
		count, err := slowSyncs(longer)
		if err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, os.WriteFile(os.Getenv(countedVariable), []byte(strconv.FormatInt(count.Load(), 10)), 0o600))
		}()
	}
	for len(args) > 0 && failed == nil {
		next := slices.Index(append(args, andCommand), andCommand)
		cmd := exec.Command(args[0], args[1:next]...)
		args = args[min(next+1, len(args)):]
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		_, err := cmd.StdinPipe() // it ends with this process
		if failed = errors.Join(err, cmd.Start()); failed == nil {
			fmt.Println(begun + strconv.Itoa(cmd.Process.Pid))
			running = append(running, cmd)
			go func() { ended <- cmd.Wait() }() // received below, in every case
		}
	}
	if len(running) == 0 {
		return errors.Join(errors.New("keep: want a command that can be started"), failed)
	}
	stop := func() {
		end = nil
		for _, cmd := range running {
			_ = cmd.Process.Signal(syscall.SIGTERM) // one that has ended needs none
		}
	}
	if failed != nil {
		stop()
	}
	for range running {
		select {
		case <-end:
			stop()
			<-ended
		case err := <-ended:
			var exit *exec.ExitError
			if killed := errors.As(err, &exit) && exit.ExitCode() < 0; !killed && end != nil {
				failed = err
				stop()
			}
		}
	}
	return failed
}

// runSpinner keeps one processor busy until standard input ends.
func runSpinner() error {
	signal.Ignore(os.Interrupt)
	end := inputEnd()
	for {
		select {
		case <-end:
			return nil
		default:
		}
		for range 1 << 20 { // about a millisecond between two checks
		}
	}
}
