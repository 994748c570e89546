package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// keep runs a replica's process until ctx ends, and starts it again when it
// dies. It keeps its thread: where the system kills a process whose parent has
// died, the parent is the thread that started it.
func (d *dev) keep(ctx context.Context, program string, r *devReplica, once bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		err := d.runReplica(ctx, program, r)
		d.settled.Store(false)
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

// errReplicaRefused is how a replica ended that must not run on the data it has.
var errReplicaRefused = errors.New("refused to run, and is left dead: it must not run on the data that it has")

// runReplica runs a replica's process to its end and says how it ended. The
// end of ctx asks it to stop, and kills it after stopBound.
//
// The process's standard input is a pipe that is never written: it ends with
// this process, however this one dies, and then the replica stops too. On Linux
// the system also kills it then: one that is suspended would not notice.
func (d *dev) runReplica(ctx context.Context, program string, r *devReplica) error {
	alive, keepOpen, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("not started: %w", err)
	}
	defer alive.Close()
	defer keepOpen.Close()
	log, err := openReplicaLog(r.ID, r.logFile(), d.out, d.settled.Load)
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
	case d.starts <- start{r.ID, cmd.Process.Pid}:
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
