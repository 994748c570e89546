package main

import (
	_ "embed"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/helptext"
)

// verb completes a command with its flags and its action.
type verb = func(g *globals, cmd *cobra.Command)

// verbs are those of the commands, by their paths. The others of help.txt only group commands.
func verbs() map[string]verb {
	return map[string]verb{
		"acquire": acquireVerb, "elect": electVerb, "semaphore": semaphoreVerb,
		"locks": locksVerb, "lock break": lockBreakVerb, "history": historyVerb, "explain": explainVerb,
		"sequencer check": sequencerCheckVerb, "sequencer show": sequencerShowVerb,

		"ls": lsVerb, "tree": treeVerb, "cat": catVerb, "put": putVerb, "txn": txnVerb, "mkdir": mkdirVerb, "rm": rmVerb, "stat": statVerb,
		"touch": touchVerb, "cp": copyVerb, "export": exportVerb, "import": importVerb, "watch": watchVerb,

		"members ls": membersLsVerb, "members join": membersJoinVerb,

		"cell status": statusVerb, "cell members": cellMembersVerb, "cell transfer": transferVerb,
		"cell add": memberAddVerb, "cell remove": memberRemoveVerb, "cell replace": memberReplaceVerb,
		"cell upgrade status": upgradeStatusVerb, "cell upgrade finish": upgradeFinishVerb,
		"cell backup": backupVerb, "cell backup verify": backupVerifyVerb, "cell backup show": backupShowVerb,
		"cell restore": restoreVerb, "cell recover": recoverVerb, "cell debug": debugVerb,
		"session ls": sessionLsVerb, "session show": sessionShowVerb, "session end": sessionEndVerb,
		"acl get": aclGetVerb, "acl set": aclSetVerb, "acl can": aclCanVerb,
		"acl file ls": aclFileLsVerb, "acl file cat": aclFileCatVerb, "acl file put": aclFilePutVerb, "acl file rm": aclFileRmVerb,
		"quota ls": quotaLsVerb, "quota set": quotaSetVerb, "top": topVerb, "lint": lintVerb,
		"drill failover": drillVerb(drillFailOver), "drill outage": drillVerb(drillOutage),
		"drill session-loss": drillVerb(drillSessionLoss), "drill slow-client": drillVerb(drillSlowClient),
		"bench locks": benchVerb("locks"), "bench writes": benchVerb("writes"), "bench reads": benchVerb("reads"),
		"bench cached": benchVerb("cached"), "bench sessions": benchVerb("sessions"), "sizing": sizingVerb,

		"config use-cell": useCellVerb, "config current": currentCellVerb, "config cells": cellsVerb,
		"config add-cell": addCellVerb, "config remove-cell": removeCellVerb,
		"completion bash": shellVerb(generateBash), "completion zsh": shellVerb((*cobra.Command).GenZshCompletion),
		"completion fish":       shellVerb(func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }),
		"completion powershell": shellVerb((*cobra.Command).GenPowerShellCompletionWithDesc),
		"version":               versionVerb, "whoami": whoamiVerb,
	}
}

//go:embed help.txt
var helpText string

// commandTree returns the root of the commands in help.txt. The section of a command begins with "## " and its usage: its path, with
// other names of the last word behind bars, and its arguments. Then come one line of summary, its description and its examples. The
// title of a group of commands is behind "# ". A name in %[] stands for one of helpValues.
func commandTree(g *globals) (root *cobra.Command) {
	at, known, title := map[string]*cobra.Command{}, verbs(), ""
	for _, section := range strings.Split("\n"+strings.NewReplacer(helpValues()...).Replace(helpText), "\n## ")[1:] {
		section, next, titled := strings.Cut(section, "\n# ")
		usage, section, _ := strings.Cut(section, "\n")
		short, section, _ := strings.Cut(section, "\n")
		long, example, _ := strings.Cut(section, "\nExamples:\n")
		words := strings.Fields(usage)
		n := slices.IndexFunc(words, func(word string) bool { return !unicode.IsLower(rune(word[0])) })
		if n < 0 {
			n = len(words)
		}
		above, names := strings.Join(words[:n-1], " "), strings.Split(words[n-1], "|")
		path := strings.TrimPrefix(above+" "+names[0], " ")
		cmd := &cobra.Command{
			Use: strings.Join(append(names[:1:1], words[n:]...), " "), Aliases: names[1:],
			Short: short, Long: strings.TrimSpace(long), Example: strings.TrimRight(example, "\n"),
		}
		if do := known[path]; do != nil {
			do(g, cmd)
		} else {
			cmd.Args, cmd.RunE, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, needsVerb, 2
		}
		switch {
		case root == nil:
			root = cmd
		case above == "":
			cmd.GroupID = title
			root.AddCommand(cmd)
		default:
			at[above].AddCommand(cmd)
		}
		at[path] = cmd
		if titled {
			title = strings.TrimSpace(next)
			root.AddGroup(&cobra.Group{ID: title, Title: title})
		}
	}
	return root
}

func newRootCommand() (*cobra.Command, *globals) {
	g := &globals{}
	root := commandTree(g)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
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
	}
	root.SetFlagErrorFunc(explainFlagError)
	g.addFlags(root.PersistentFlags())
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
