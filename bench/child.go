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
	"strings"
	"syscall"
	"time"
)

// The other processes that this program runs as.
const (
	memberCommand = "etcd-member"
	keepCommand   = "keep"
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
}

// startChild runs this program again, with more variables in its environment. Its standard error
// goes to a file in dir.
func startChild(dir, name string, env []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, cmd: exec.Command(self, args...), lines: make(chan string, 64), gone: make(chan struct{}), logPath: filepath.Join(dir, name+".log")}
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

// stop asks the process to end, waits, and kills it if it does not.
func (c *child) stop() error {
	_ = c.input.Close() // the closed pipe is the request, also if it is closed already
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-c.gone:
		return nil
	case <-timer.C:
	}
	err := c.cmd.Process.Kill()
	<-c.gone
	return errors.Join(fmt.Errorf("%s did not end within %v and was killed", c.name, stopTime), err)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// pids returns the process ids of children.
func pids(list []*child) []int {
	var ids []int
	for _, c := range list {
		ids = append(ids, c.pid())
	}
	return ids
}

// stopAll stops children, one after the other.
func stopAll(list []*child) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
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

// runKeeper runs another program, and ends it when standard input ends.
func runKeeper(args []string) error {
	if len(args) == 0 {
		return errors.New("keep: want a command")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the bench closes the pipe
	end := inputEnd()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // received below, in every case
	select {
	case err := <-ended:
		return err
	case <-end:
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, cmd.Process.Kill(), <-ended)
	}
	return <-ended
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
