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
