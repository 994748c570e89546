package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/cell"
)

// keepReplica runs a replica's process until ctx ends, and restarts it when it dies. It keeps its thread: Linux
// kills the process when the thread that started it ends.
func (d *dev) keepReplica(ctx context.Context, program string, r *devReplica, once bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		err := d.runReplica(ctx, program, r)
		d.healthy.Store(false)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errReplicaRefused) {
			d.out.printf("%-3s %v; %s says why", r.ID, err, r.logFile())
			return
		}
		if once {
			d.out.printf("%-3s %v; left dead (--no-restart)", r.ID, err)
			return
		}
		d.out.printf("%-3s %v; starting it again in %v", r.ID, err, restartAfter)
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartAfter):
		}
	}
}

// errReplicaRefused is returned for a replica that must not run on its data.
var errReplicaRefused = errors.New("refused to run, and is left dead: it must not run on the data that it has")

// runReplica runs a replica's process to its end, and returns how it ended. When ctx ends it asks the process
// to stop, and kills it after stopBound.
//
// The process's standard input is a pipe without a writer. It closes when this process ends in any way, and the
// replica then stops. On Linux the system also kills the replica, since a suspended one does not notice the
// closed pipe.
func (d *dev) runReplica(ctx context.Context, program string, r *devReplica) error {
	alive, keepOpen, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("not started: %w", err)
	}
	defer alive.Close()
	defer keepOpen.Close()
	log, err := openReplicaLog(r.ID, r.logFile(), d.out, d.healthy.Load)
	if err != nil {
		return fmt.Errorf("not started: %w", err)
	}
	defer log.Close()

	cmd := exec.CommandContext(ctx, program, "serve", "--config", r.configFile(), "--exit-with-stdin")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = alive, log, log
	cmd.SysProcAttr = ownGroup() // Ctrl-C is for dev, which then stops the replicas
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopBound
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("not started: %w", err)
	}
	select {
	case d.starts <- startedReplica{r.ID, cmd.Process.Pid}:
	case <-ctx.Done():
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("stopped without being asked")
	case errors.As(err, &exit) && exit.ExitCode() == exitRefused:
		return errReplicaRefused
	case errors.As(err, &exit):
		return fmt.Errorf("died (%s)", exit.ProcessState)
	default:
		return fmt.Errorf("died: %w", err)
	}
}

const (
	pollEvery  = 100 * time.Millisecond // until there is a master
	pollSlowly = 500 * time.Millisecond // from then on
	quietFor   = 2 * time.Second        // between two lines about the wait
	pollBound  = time.Second            // for one replica's answer
	maxAnswer  = 64 << 10               // bytes of one replica's answer
)

// followMaster asks every replica repeatedly, and sends each new master's first answer to masters. Without a
// master, it prints from time to time what it waits for.
func (d *dev) followMaster(ctx context.Context, masters chan<- cell.Health) {
	client := &http.Client{Timeout: pollBound, Transport: &http.Transport{DisableKeepAlives: true}}
	remind := time.NewTicker(quietFor)
	defer remind.Stop()
	var (
		known cell.Health   // of the latest master
		seen  pollResult    // of the latest round
		since time.Duration // how long there has been no master
	)
	next := pollEvery
	for {
		before := seen.master.Master
		seen = d.poll(ctx, client)
		d.healthy.Store(seen.isHealthy() && ctx.Err() == nil)
		if before != "" && seen.master.Master == "" {
			since = 0
			remind.Reset(quietFor)
		}
		if m := seen.master; m.Epoch > known.Epoch {
			known, next = m, pollSlowly
			select {
			case masters <- m:
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-remind.C:
			if seen.master.Master == "" {
				since += quietFor
				d.out.printf("waiting for a master since %v: %s; the logs are in %s", since, seen, d.cell.logFiles())
			}
		case <-time.After(next):
		}
	}
}

type pollResult struct {
	replicas  int
	answering int
	master    cell.Health // the master's answer, if there is one
	silent    string      // a silent replica, and why
}

func (s pollResult) isHealthy() bool { return s.answering == s.replicas && s.master.Master != "" }

func (s pollResult) String() string {
	text := fmt.Sprintf("%d of %d replicas answer, none is the master yet", s.answering, s.replicas)
	if s.silent != "" {
		text += "; " + s.silent
	}
	return text
}

func (d *dev) poll(ctx context.Context, client *http.Client) pollResult {
	seen := pollResult{replicas: len(d.cell.Replicas)}
	for i := range d.cell.Replicas {
		r := &d.cell.Replicas[i]
		answer, err := askReady(ctx, client, r.HTTP)
		if err != nil {
			seen.silent = fmt.Sprintf("%s does not (%v)", r.ID, err)
			continue
		}
		seen.answering++
		// A former master that does not know of its successor has an older epoch.
		if answer.Ready && answer.Master != "" && answer.Master == answer.Replica && answer.Epoch > seen.master.Epoch {
			seen.master = answer
		}
	}
	return seen
}

func askReady(ctx context.Context, client *http.Client, address string) (cell.Health, error) {
	var answer cell.Health
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return answer, err
	}
	reply, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer reply.Body.Close()
	// A replica that is not ready answers with an error status and the same fields.
	err = json.NewDecoder(http.MaxBytesReader(nil, reply.Body, maxAnswer)).Decode(&answer)
	if err != nil {
		return answer, fmt.Errorf("GET /readyz: %s: %w", reply.Status, err)
	}
	return answer, nil
}
