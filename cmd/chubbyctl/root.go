package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/helptext"
)

func newRootCommand() (*cobra.Command, *globals) {
	g := &globals{}
	root := &cobra.Command{
		Use:   "chubbyctl",
		Short: "Take locks, and read and write the small files of a Chubby cell",
		Long: `chubbyctl takes locks, runs commands under them, and reads and writes the small
files of a Chubby cell.

A path is /ls/CELL/NAME/...; /ls/local/..., and what does not begin so, is in the default
cell: that of --cell, CHUBBY_CELL or 'chubbyctl config use-cell'; else the only one that
is configured; else local. The cell's servers are found from --servers; else from
CHUBBY_CELLS ("foo=h1:7421,h2:7421"); else from $CHUBBY_CONFIG or
~/.config/chubby/cells.yaml; else from DNS; else, for a cell named nowhere, on this
machine, where 'chubbyd dev' starts one.

A verb that is not in the list is the program chubbyctl-VERB, beside chubbyctl or on PATH.
'chubbyctl queue', for work queues, and 'chubbyctl barrier' are chubbyctl-recipes.

Exit codes are in 'chubbyctl help exit-codes', variables of the environment in 'chubbyctl
help environment'.`,
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
			if err := g.validate(); err != nil {
				return err
			}
			if err := checkFlags(cmd); err != nil {
				return err
			}
			ctx, err := g.trace.begin(cmd.Context(), cmd)
			cmd.SetContext(ctx)
			if id := g.trace.id(); id != "" && g.verbose {
				g.notice(g.stderr, "trace "+id)
			}
			return err
		},
	}
	root.SetFlagErrorFunc(explainFlagError)
	g.addFlags(root.PersistentFlags())
	addGrouped(root, "Locks", newAcquireCommand(g), newElectCommand(g), newSemaphoreCommand(g),
		newLocksCommand(g), newLockCommand(g), newHistoryCommand(g), newExplainCommand(g), newSequencerCommand(g))
	addGrouped(root, "Files", newLsCommand(g), newTreeCommand(g), newCatCommand(g), newPutCommand(g), newTxnCommand(g), newMkdirCommand(g), newRmCommand(g),
		newStatCommand(g), newTouchCommand(g), newCopyCommand(g), newExportCommand(g), newImportCommand(g), newWatchCommand(g))
	addGrouped(root, "Recipes", newMembersCommand(g))
	addGrouped(root, "Operate", newCellCommand(g), newSessionCommand(g), newACLCommand(g), newQuotaCommand(g), newTopCommand(g), newLintCommand(g),
		newDrillCommand(g), newBenchCommand(g), newSizingCommand(g))
	addGrouped(root, "Set up", newConfigCommand(g), newCompletionCommand(), newVersionCommand(g), newWhoamiCommand(g))
	root.AddCommand(newGuardianCommand())
	root.Version = builtFrom().Version // for --version, which prints what version prints
	root.SetVersionTemplate(builtFrom().String())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelpCommand(root))
	root.SetHelpCommandGroupID("Set up")
	helptext.Install(root, func(w io.Writer) int { return term.StyleOf(w).Width })
	g.completeBelow(root)
	return root, g
}

func (g *globals) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(&g.output), "output", "o", string(term.Text), "text, wide (text of which nothing is left out), json (one object per line, errors too), or yaml (the same fields, a document each)")
	flags.DurationVar(&g.timeout, "timeout", 15*time.Second, "how long an operation on the cell may take")
	flags.StringSliceVar(&g.servers, "servers", nil, "the cell's replicas, host:port,...")
	flags.StringVar(&g.cell, "cell", "", "the default `CELL`: of paths that do not begin with /ls/CELL, and where none is named")
	flags.StringVar(&g.as, "as", "", "the principal to act as, where the cell takes a client's word for it")
	flags.StringVar(&g.tls.CA, "cacert", "", "who signs the certificates of the servers, a file in PEM")
	flags.StringVar(&g.tls.Cert, "cert", "", "the certificate that says who you are, a file in PEM")
	flags.StringVar(&g.tls.Key, "key", "", "the key of --cert, a file in PEM")
	flags.StringVar(&g.tokenFile, "token-file", "", "a file with the token that says who you are, instead of --cert")
	flags.StringVar(&g.trace.endpoint, "trace-endpoint", "", "where a trace of the command is sent, by OTLP over gRPC: http://HOST:PORT, or https://HOST:PORT with TLS")
	flags.BoolVarP(&g.verbose, "verbose", "v", false, "say more, on standard error")
}

func addGrouped(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}
