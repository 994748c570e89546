package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
)

type devOptions struct {
	cell      string
	replicas  int
	data      string
	basePort  int
	noRestart bool
	tls       bool
}

const (
	restartAfter = 2 * time.Second  // how long a dead replica stays down, so that users can watch a fail-over
	stopBound    = 20 * time.Second // from SIGTERM to SIGKILL; longer than a replica's own limit
)

func newDevCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cell on this machine, for trying",
		Long: `dev runs every replica of a cell as a process of its own on this machine, on
the loopback interface only. They are real replicas: kill one with -9 and watch
the others carry on; it is started again after 2 seconds.

With base port P, replica i (from 0) serves clients on P+i, the other replicas on
P+10+i, and health and metrics on P+20+i. The data directory is kept: the next
dev with the same directory finds everything again. In it, dev.json names the
processes, and <id>/log holds everything a replica logs; only warnings and errors
are shown here.

Nothing is encrypted, and anybody on this machine may act as anybody, unless --tls
is given: then the replicas have certificates, and a client needs one, too. chubbyctl
acts as the user who runs it, if it runs in the directory in which dev was started.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) stop every replica. They
stop too if dev itself is killed.`,
		Example: `  chubbyd dev
  chubbyd dev --replicas 3 --no-restart
  chubbyd dev --tls
  chubbyd dev --cell other --base-port 8421`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.runDev(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.cell, "cell", api.LocalCell, "the cell's name")
	flags.IntVar(&o.replicas, "replicas", 5, "how many replicas, 1 to 10; an odd number makes sense")
	flags.StringVar(&o.data, "data", "", "the directory to keep everything in (default ./.chubby/<cell>)")
	flags.IntVar(&o.basePort, "base-port", api.DefaultClientPort, "the client port of the first replica")
	flags.BoolVar(&o.tls, "tls", false, "encrypt everything, with certificates that are made in the data directory")
	flags.BoolVar(&o.noRestart, "no-restart", false, "leave a dead replica dead")
	return cmd
}

func (o *devOptions) validate() error {
	switch {
	case !api.ValidCell(o.cell):
		return usagef("--cell %q cannot be a cell's name: use letters, digits, '-', '_' and '.'", o.cell)
	case o.replicas < 1 || o.replicas > portsApart:
		return usagef("--replicas %d: 1 to %d are possible", o.replicas, portsApart)
	case o.basePort < 1 || o.basePort+3*portsApart > 65536:
		return usagef("--base-port %d: 1 to %d are possible; ports up to %d above it are used", o.basePort, 65536-3*portsApart, 3*portsApart-1)
	}
	if o.data == "" {
		o.data = filepath.Join(".chubby", o.cell)
	}
	return nil
}

func (o *devOptions) runDev(ctx context.Context, out io.Writer) error {
	endsByPipe()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it once per replica: %w", err)
	}
	c := newDevCell(o.cell, o.data, o.replicas, o.basePort)
	c.tls = o.tls
	c.TLS = c.forClients()
	unlock, err := c.lockDir()
	if err != nil {
		return err
	}
	defer unlock()
	if err := errors.Join(c.makeCertificates(), c.writeConfigs()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	onHangup(ctx, func() { cancel(errHangup) })
	d := &dev{cell: c, out: &console{out: out}, starts: make(chan startedReplica)}
	var running sync.WaitGroup
	for i := range c.Replicas {
		running.Go(func() { d.keepReplica(ctx, program, &c.Replicas[i], o.noRestart) })
	}
	masters := make(chan cell.Health)
	running.Go(func() { d.followMaster(ctx, masters) })

	err = d.reportStarts(ctx, masters)
	d.healthy.Store(false)
	if ctx.Err() != nil {
		d.out.printf("stopping %d replicas", len(c.Replicas))
	}
	cancel(errors.New("dev ends"))
	running.Wait()
	return errors.Join(err, c.removeJSON())
}

// dev is one run of `chubbyd dev`. One goroutine for each replica starts its process again and again; one more
// looks for the master. The goroutine of runDev writes dev.json and waits for the others.
type dev struct {
	cell   *devCell
	out    *console
	starts chan startedReplica

	// healthy is set while every replica answers and one is the master. Otherwise warnings about missing
	// replicas are expected, and stay in the logs.
	healthy atomic.Bool
}

type startedReplica struct {
	id  string
	pid int
}

// reportStarts records started processes and reports masters, until ctx ends.
func (d *dev) reportStarts(ctx context.Context, masters <-chan cell.Health) error {
	announced, ready := 0, false
	var news <-chan cell.Health // masters, once every replica has been printed
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-d.starts:
			r := d.cell.replicaOf(s.id)
			r.PID = s.pid
			if err := d.cell.writeJSON(); err != nil {
				return err
			}
			d.out.printf("%-3s pid %-7d client %s  raft %s  http %s  log %s", r.ID, r.PID, r.Client, r.Raft, r.HTTP, r.logFile())
			if announced++; announced == len(d.cell.Replicas) {
				news = masters
				d.out.printf("%s", d.cell.whoIsAsked())
			}
		case m := <-news:
			if ready {
				d.out.printf("master is now %s at %s, epoch %d", m.Master, m.Address, m.Epoch)
				continue
			}
			ready = true
			d.out.printf("ready: cell %s, master %s at %s", d.cell.Cell, m.Master, m.Address)
			d.out.printf("%s", d.cell.firstSteps())
		}
	}
}

type console struct {
	mu  sync.Mutex // held while writing to out
	out io.Writer
}

func (c *console) printf(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + "\n"
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.out, line) // fails if the output is closed: then nobody reads it
}
