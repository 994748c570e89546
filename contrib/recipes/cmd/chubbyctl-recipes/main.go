// Command chubbyctl-recipes has the verbs of chubbyctl for the recipes of this module, which chubbyctl runs it for: queue and barrier. It
// has the same global flags, environment, exit codes and ways to print.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/recipes"
	"github.com/chubbylock/chubby/internal/supervise"
)

// guardianVerb makes this program the parent of a command that runs under an item.
const guardianVerb = "guardian"

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardianVerb {
		if err := supervise.RunGuardian(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "chubbyctl:", err)
			os.Exit(exitFailed)
		}
		return
	}
	os.Exit(newGlobals(os.Stdout, os.Stderr).run(context.Background(), os.Args[1:]))
}

// globals are the flags that every verb has, as those of chubbyctl have.
type globals struct {
	output    string
	timeout   time.Duration
	servers   []string
	cell, as  string
	tls       client.TLSFiles
	tokenFile string
	verbose   bool
	quiet     bool // of queue take: nothing is said unless somebody has to act

	out    *printer
	stderr io.Writer
	adapt  func(*client.Config) // for tests, which have another network and clock
}

func newGlobals(out, stderr io.Writer) *globals {
	return &globals{out: &printer{w: out}, stderr: stderr, adapt: func(*client.Config) {}}
}

// run runs a command line, and returns the exit code.
func (g *globals) run(ctx context.Context, args []string) int {
	root := newRootCommand(g)
	root.SetArgs(args)
	root.SetOut(g.out)
	root.SetErr(g.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil && g.out.failed != nil {
		err = fmt.Errorf("the answer could not be written to standard output: %w", g.out.failed)
	}
	g.printError(err)
	return exitCode(err)
}

func newRootCommand(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:               "chubbyctl",
		Short:             "Work queues and double barriers",
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		RunE:              needsVerb,
		PersistentPreRunE: func(*cobra.Command, []string) error { return g.validate() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see '%s --help'", err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVarP(&g.output, "output", "o", "text", "text, wide, json (one object per line, errors too), or yaml (the same, a document each)")
	flags.DurationVar(&g.timeout, "timeout", 15*time.Second, "how long an operation on the cell may take")
	flags.StringSliceVar(&g.servers, "servers", nil, "the cell's replicas, host:port,...")
	flags.StringVar(&g.cell, "cell", "", "the default `CELL`: of paths that do not begin with /ls/CELL")
	flags.StringVar(&g.as, "as", "", "the principal to act as, where the cell takes a client's word for it")
	flags.StringVar(&g.tls.CA, "cacert", "", "who signs the certificates of the servers, a file in PEM")
	flags.StringVar(&g.tls.Cert, "cert", "", "the certificate that says who you are, a file in PEM")
	flags.StringVar(&g.tls.Key, "key", "", "the key of --cert, a file in PEM")
	flags.StringVar(&g.tokenFile, "token-file", "", "a file with the token that says who you are, instead of --cert")
	flags.BoolVarP(&g.verbose, "verbose", "v", false, "say more, on standard error")
	root.AddCommand(newQueueCommand(g), newBarrierCommand(g))
	return root
}

func newQueueCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Put items into a work queue, run a command on them, list and retry them",
		Long: `A work queue is a directory with a file for each item, whose lock a worker holds
while it works, and which it deletes when it is done: so no item is lost, and no
two work on one at a time. But an item whose worker dies is begun again: its work
is to be such that it can be.

Items of a higher priority come first, then those that were put first. An item
that has been begun as often as --attempts of its worker allows, and is not done,
is a dead letter: it stays, and nobody takes it, until somebody retries or
discards it.

Exit codes and variables: 'chubbyctl help exit-codes', 'chubbyctl help environment'.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && args[0] == "help":
				about, _, err := cmd.Find(args[1:])
				return cmp.Or(err, about.Help())
			case len(args) > 0:
				return usagef("queue: there is no command %q; 'chubbyctl queue put PATH DATA' puts an item into a work queue, "+
					"and 'chubbyctl queue take PATH -- CMD' runs a command on the next item", args[0])
			case g.json():
				return usagef("chubbyctl queue needs one of the commands put, take, list, retry, discard")
			}
			return needsVerb(cmd, args)
		},
	}
	cmd.AddCommand(newPutCommand(g), newTakeCommand(g), newListCommand(g),
		newDeadLetterCommand(g, "retry", "Make dead letters items again", "is in the queue again", (*recipes.Queue).Retry),
		newDeadLetterCommand(g, "discard", "Delete dead letters, with their data", "is deleted", (*recipes.Queue).Discard))
	return cmd
}

// needsVerb is the action of a command line that has no verb.
func needsVerb(cmd *cobra.Command, _ []string) error {
	_ = cmd.Help() // the error below comes also if it cannot be written
	return usagef("%s needs one of the commands above", cmd.CommandPath())
}

func (g *globals) validate() error {
	switch {
	case g.output != "text" && g.output != "wide" && !g.json():
		return usagef("-o %q: want text, wide, json or yaml", g.output)
	case (g.tls.Cert == "") != (g.tls.Key == ""):
		return usagef("--cert and --key are needed together")
	case g.timeout <= 0:
		return usagef("--timeout %v: want a positive duration, as in 15s", g.timeout)
	}
	return nil
}

// json reports whether programs read what is printed.
func (g *globals) json() bool { return g.output == "json" || g.output == "yaml" }

// parsePath reads the path of a recipe's directory. One that does not begin with /ls/CELL is in the default cell, and so is /ls/local/...: that is
// the cell of --cell; or that of --servers, whatever its name is; or that of CHUBBY_CELL, which chubbyctl sets.
func (g *globals) parsePath(verb, text string) (api.Path, error) {
	text = strings.TrimSuffix(text, "/")
	p, err := api.ParsePath(text)
	named := err == nil || text == "" || strings.HasPrefix(text, "/"+api.Root+"/")
	if !named || err == nil && p.Cell() == api.LocalCell {
		below, cell := text, cmp.Or(g.cell, os.Getenv("CHUBBY_CELL"), api.LocalCell)
		if named {
			below = string(p.Name())
		}
		if g.cell == "" && len(g.servers) > 0 {
			cell = api.LocalCell
		}
		p, err = api.ParsePath(strings.TrimSuffix("/"+api.Root+"/"+cell+"/"+strings.TrimPrefix(below, "/"), "/"))
	}
	if err == nil && p.IsRoot() {
		err = usagef("%s: %v is the root directory of its cell; name a directory below it, as in %v/name", verb, p, p)
	}
	return p, err
}

// refusedFor is how long a command tries again when nothing listens where its cell should be, because that is being restarted.
const refusedFor = 1500 * time.Millisecond

// config returns the configuration for a client of a cell.
func (g *globals) config(cell string) client.Config {
	cfg := client.Config{Cell: cell, Servers: g.servers, As: g.as, TLS: g.tls, RefusedFor: refusedFor, NoCache: true}
	if g.tokenFile != "" {
		cfg.Credentials = client.TokenFile(g.tokenFile)
	}
	g.adapt(&cfg)
	return cfg
}

// withSession does something in a session of its own until it is done or interrupted. bound, which ends after --timeout, bounds the
// opening, and calls that do not wait for others.
func (g *globals) withSession(ctx context.Context, p api.Path, f func(ctx, bound context.Context, c *client.Client) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	bound, cancel := context.WithTimeoutCause(ctx, g.timeout, outOfTime{g.timeout})
	defer cancel()
	c, err := client.New(bound, g.config(p.Cell()))
	if err != nil {
		return orInterrupt(ctx, err)
	}
	defer closeSession(c)
	return orInterrupt(ctx, f(ctx, bound, c))
}

// withQueue does something with a queue within --timeout.
func (g *globals) withQueue(ctx context.Context, p api.Path, f func(ctx context.Context, c *client.Client, q *recipes.Queue) error) error {
	return g.withSession(ctx, p, func(_, bound context.Context, c *client.Client) error {
		return f(bound, c, recipes.NewQueue(c, p.String(), recipes.QueueOptions{}))
	})
}

// closeSession ends a session. If that fails, it ends when its lease does; what was done remains.
func closeSession(c *client.Client) {
	limit := 3 * time.Second
	if c.Left() <= 0 {
		limit = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = c.Close(ctx)
}

// interruptible returns a context that the first interrupt ends. After it, interrupts have their default action again, so a second
// one ends the process.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, supervise.Interrupts()...)
	go func() {
		defer close(ended)
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			cancel(interrupted{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-ended
	}
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "interrupted by a signal: " + i.signal.String() }

// orInterrupt returns the signal that ended ctx, if one did, in place of the error that a call made of that. It says what may be done.
func orInterrupt(ctx context.Context, err error) error {
	var signal interrupted
	switch {
	case err == nil || errors.As(err, new(*exitError)) || !errors.As(context.Cause(ctx), &signal):
		return err
	case errors.Is(err, api.Uncertain):
		return fmt.Errorf("%w; %w", signal, err)
	}
	return signal
}
