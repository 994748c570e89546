package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// globals are the flags that every command has.
type globals struct {
	output  term.Format
	timeout time.Duration
	servers []string
	as      string
	verbose bool

	stop   func()               // ends the watch for interrupts; nil if there is none
	asked  func()               // notes that a signal has asked for the end; set with stop
	stderr *term.Speaker        // for what is to be said while an operation waits; nil is nowhere
	adapt  func(*client.Config) // for tests, whose network and clock are others; nil is nothing
}

// For ending a session in an orderly way when the work is done: while the cell
// answers, and when it has not answered for a while.
const (
	closeBound    = 3 * time.Second
	farewellBound = 200 * time.Millisecond
)

// refusedFor is how long a command goes on when nothing listens where its cell
// should be: a cell that is being restarted on one machine takes about a second.
const refusedFor = 1500 * time.Millisecond

func newRootCommand() (*cobra.Command, *globals) {
	g := &globals{}
	root := &cobra.Command{
		Use:   "chubbyctl",
		Short: "Take locks, and read and write the small files of a Chubby cell",
		Long: fmt.Sprintf(`chubbyctl takes locks, runs commands under them, and reads and writes the small
files of a Chubby cell.

A path is /ls/<cell>/<components>; /ls/local/... is the default cell. The cell's
servers are found from --servers; else from CHUBBY_CELLS ("foo=h1:7421,h2:7421");
else from $CHUBBY_CONFIG or ~/.config/chubby/cells.yaml; else from DNS; else, for a
cell named nowhere, on this machine, where 'chubbyd dev' starts one.

Exit codes:
%s
Environment:
%s`, glossary(exitCodes()), strings.TrimRight(glossary(environment()), "\n")),
		Example: `  chubbyctl acquire /ls/local/nightly -- ./backup.sh
  chubbyctl locks
  chubbyctl put /ls/local/motd 'hello' && chubbyctl cat /ls/local/motd`,
		Args:                       cobra.ArbitraryArgs,
		RunE:                       needsVerb,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			g.stderr = term.NewSpeaker(term.Bare(cmd.ErrOrStderr()))
			return g.validate()
		},
	}
	root.SetFlagErrorFunc(flagFault)
	flags := root.PersistentFlags()
	flags.StringVarP((*string)(&g.output), "output", "o", string(term.Text), "text, wide (text of which nothing is left out), or json: one object per line, errors too")
	flags.DurationVar(&g.timeout, "timeout", 15*time.Second, "how long an operation on the cell may take")
	flags.StringSliceVar(&g.servers, "servers", nil, "the cell's replicas, host:port,...")
	flags.StringVar(&g.as, "as", "", "the principal to act as, where the cell takes a client's word for it")
	flags.BoolVarP(&g.verbose, "verbose", "v", false, "say more, on standard error")
	root.AddCommand(
		newAcquireCommand(g), newElectCommand(g), newGuardianCommand(),
		newLsCommand(g), newTreeCommand(g), newCatCommand(g), newPutCommand(g), newMkdirCommand(g),
		newRmCommand(g), newStatCommand(g), newTouchCommand(g), newCopyCommand(g), newWatchCommand(g),
		newLocksCommand(g), newExplainCommand(g), newLockCommand(g), newSequencerCommand(g), newSessionCommand(g),
		newACLCommand(g), newQuotaCommand(g), newCellCommand(g), newBenchCommand(g), newCompletionCommand(), newVersionCommand(g),
	)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCommand(root))
	g.complete(root)
	return root, g
}

func (g *globals) validate() error {
	switch {
	case !g.output.IsValid():
		return usagef("-o %q: want text, wide or json", g.output)
	case g.timeout <= 0:
		return usagef("--timeout %v: want a positive duration, as in 15s", g.timeout)
	}
	return nil
}

func (g *globals) json() bool { return g.output == term.JSON }

// needsVerb is the action of a command that only groups others.
func needsVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("%s needs one of the commands above", cmd.CommandPath())
	}
	advice := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	if meant := meaningOf(args[0]); meant != "" && !cmd.HasParent() {
		return usagef("there is no command %q; %s", args[0], meant)
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	where := ""
	if cmd.HasParent() {
		where = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
	}
	return usagef("%sthere is no command %q; %s", where, args[0], advice)
}

func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: needsVerb, SuggestionsMinimumDistance: 2}
	group.AddCommand(commands...)
	return group
}

// parsePath reads a full path, and says what to write where it is not one. A
// directory may have a slash behind, as completion and ls write it.
func parsePath(text string) (api.Path, error) {
	path, err := api.ParsePath(strings.TrimSuffix(text, "/"))
	if err == nil {
		return path, nil
	}
	var e *api.Error
	if errors.As(err, &e) && !strings.HasPrefix(text, "/"+api.Root+"/") {
		local := "/" + api.Root + "/" + api.LocalCell + "/" + strings.Trim(text, "/")
		if _, localErr := api.ParsePath(local); localErr == nil {
			e.Message = fmt.Sprintf("a path names its cell; in the default cell this one is %s", local)
		}
	}
	return path, err
}

// config is that of a client of a cell.
func (g *globals) config(cell string) client.Config {
	cfg := client.Config{
		Cell: cell, Servers: g.servers, As: g.as, RefusedFor: refusedFor,
		NoCache: true, // it reads little, and should hold up nobody
	}
	if g.adapt != nil {
		g.adapt(&cfg)
	}
	return cfg
}

// look runs f with a cell, without a session, within --timeout.
func (g *globals) look(ctx context.Context, cell string, f func(context.Context, *client.Cell) error) error {
	return g.patiently(ctx, cell, api.Path{}, func(ctx context.Context) error {
		c, err := client.Dial(ctx, g.config(cell))
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, c), c.Close())
	})
}

// visit runs f with a session of its own, within --timeout.
func (g *globals) visit(ctx context.Context, cell string, f func(context.Context, *client.Client) error) error {
	return g.visitAt(ctx, cell, api.Path{}, f)
}

// visitAt is visit for an operation on one node.
func (g *globals) visitAt(ctx context.Context, cell string, path api.Path, f func(context.Context, *client.Client) error) error {
	return g.patiently(ctx, cell, path, func(ctx context.Context) error {
		c, err := client.New(ctx, g.config(cell))
		if err != nil {
			return err
		}
		defer g.leave(ctx, c)
		return f(ctx, c)
	})
}

// bound bounds an operation on the cell by --timeout.
func (g *globals) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, g.timeout, outOfTime{g.timeout})
}

// leave ends a session. If that fails, the session ends by its lease, and
// nothing that was done is undone.
func (g *globals) leave(ctx context.Context, c *client.Client) {
	g.leaveWithin(ctx, c, closeBound)
}

// leaveWithin is leave in less time.
func (g *globals) leaveWithin(ctx context.Context, c *client.Client, bound time.Duration) {
	if c.Left() <= 0 {
		bound = farewellBound
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(bound, g.timeout))
	defer cancel()
	_ = c.Close(ctx)
}

// withHandle runs f with an open node, in a session of its own.
func (g *globals) withHandle(ctx context.Context, path api.Path, opts client.OpenOptions, f func(context.Context, *client.Handle) error) error {
	return g.visitAt(ctx, path.Cell(), path, func(ctx context.Context, c *client.Client) error {
		h, err := c.Open(ctx, path.String(), opts)
		if err != nil {
			return withAdvice(err, path, opts.Create)
		}
		return f(ctx, h)
	})
}

// withAdvice says how to make the directory that a new node needs.
func withAdvice(err error, path api.Path, create client.Create) error {
	if create != client.Existing && api.CodeOf(err) == api.NotFound {
		return fmt.Errorf("%w; chubbyctl mkdir -p %s does", err, quoted(path.Parent().String()))
	}
	return err
}

// quoted is a word as a shell reads it, for commands that are shown to be pasted.
func quoted(word string) string {
	special := func(r rune) bool {
		return r < 128 && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%,=", r)
	}
	if !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// notice writes something that the user should know while things run.
func (g *globals) notice(w io.Writer, text string) { g.output.Notice(w, text) }
