package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/misuse"
)

//go:embed help.txt
var helpText string

// entry is a word and its meaning, for help and the reference pages.
type entry struct{ word, meaning string }

// topic returns a list of help.txt, behind all commands: lines with words, and behind two spaces what they mean.
func topic(name string) (list []entry) {
	_, text, _ := strings.Cut(helpText, "\n### "+name+"\n")
	text, _, _ = strings.Cut(text, "\n### ")
	for line := range strings.Lines(text) {
		if word, meaning, found := strings.Cut(strings.TrimSpace(line), "  "); found {
			list = append(list, entry{word, meaning})
		}
	}
	return list
}

// helpTopics are the lists that help prints.
func helpTopics() []string { return []string{"exit-codes", "environment"} }

// meaningOf returns the command for a word of another program, "group/word" or "command/-flag" below the root; or "".
func meaningOf(word string) string {
	for _, one := range topic("other words") {
		if slices.Contains(strings.Fields(one.word), word) {
			return one.meaning
		}
	}
	return ""
}

// helpValues are those of the words in help.txt, each with its name before it.
func helpValues() (pairs []string) {
	abilities := term.Each(acts(), func(a act) string { return fmt.Sprintf("  %-7s %s", a.word, a.explain) })
	for name, value := range map[string]any{
		"acts": strings.Join(abilities, "\n"), "kinds": strings.ReplaceAll(strings.Join(kindNames(subscribable()), ", "), "conflicting", "\n  conflicting"),
		"misuses": strings.ReplaceAll(strings.Join(misuseNames(), ", "), "unused-cache, ", "unused-cache,\n"), "signals": term.Style{Width: 86}.Wrap("Signals that chubbyctl gets while CMD runs are passed on to CMD: those that a terminal sends to its "+
			"process group, others to CMD alone. Not passed on are "+supervise.NotForwarded()+". While chubbyctl waits for the lock, "+
			"INT, TERM, HUP and QUIT end it, and other signals that it could pass on are ignored: there is no CMD yet. "+
			"systemd signals every process of a unit, so that CMD would get SIGTERM twice; KillMode=mixed has it signal chubbyctl only.", ""),
		"misuse-window": misuse.Window, "misuse-time": misuse.MinTime, "event-queue": api.MaxEventQueue, "hook-grace": hookGrace,
		"tree-nodes": recipe.DefaultTreeNodes, "tree-mib": recipe.DefaultTreeBytes >> 20, "max-contents": api.MaxContents, "max-steps": api.MaxTxnSteps,
		"kill-after": defaultKillAfter, "lagging": lagging, "max-outage": api.MaxOutage, "cache-lease": api.CacheLease,
		"bench-clients": maxBenchClients, "bench-time": maxBenchDuration, "completion-time": completionBound,
		"bench": `Operations are counted that end within --duration. What takes longer is waited for, at
most for --timeout, and shows in the latencies alone. With --rate an operation takes
time from when it was due, so that waiting for one before it is not left out. The first
that fails ends the bench. Ctrl-C ends it too: the figures until then are printed, and
it exits with 130.`,
		"member-change": `It waits until the change is complete, and says how far it is, and what it waits for. An
interrupt does not stop the change. One change is under way at a time. With --no-wait it
returns when the change has been decided. --timeout bounds that decision, and how long the
cell may not answer afterwards, but not the change. If another operator takes the change
back meanwhile, it fails.

It is for operators of the cell (/ls/CELL/acl/operators).`,
	} {
		pairs = append(pairs, "%["+name+"]", fmt.Sprint(value))
	}
	return pairs
}

func glossary(terms []entry) string {
	const wide = 13
	var b strings.Builder
	for _, t := range terms {
		first := fmt.Sprintf("  %-*s  ", wide, t.word)
		if len(t.word) > wide {
			b.WriteString("  " + t.word + "\n")
			first = strings.Repeat(" ", wide+4)
		}
		b.WriteString(term.Style{Width: 80}.Wrap(t.meaning, first) + "\n")
	}
	return b.String()
}

type versionFields struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

func versionVerb(g *globals, cmd *cobra.Command, _ []string) error {
	v := builtFrom()
	return g.output.Say(cmd.OutOrStdout(), v, "%s", strings.TrimSuffix(v.String(), "\n"))
}

func (v versionFields) String() string {
	return fmt.Sprintf("chubbyctl %s\ncommit    %s\ngo        %s %s/%s\n", v.Version, v.Commit, v.Go, runtime.GOOS, runtime.GOARCH)
}

// builtFrom returns what the Go tool recorded at build time.
func builtFrom() versionFields {
	v := versionFields{Version: "unknown", Commit: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	modified := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " (with local changes)"
		}
	}
	v.Commit += modified
	return v
}

// cobra's script escapes a candidate only if it is the only one. Of several it inserts the common prefix
// unescaped, so that a directory with a space would become two arguments.
const (
	bashEscapesOne = `        if (( ${#COMPREPLY[@]} == 1 )); then
            COMPREPLY[0]=$(printf "%q" "${COMPREPLY[0]}")
        fi
`
	bashEscapesAll = `        if (( ${#COMPREPLY[@]} > 0 )); then
            IFS=$'\n' read -ra COMPREPLY -d '' < <(printf "%q\n" "${COMPREPLY[@]}")
        fi
`
)

// cobra's bash script evaluates the line's words, for quotes and variables, and so would run a half-typed
// command substitution. For such a line nothing is offered: ":4" says so, and excludes files. (zsh itself
// expands the line at Tab, before any script.)
const (
	bashEvaluates = `    out=$(eval "${requestComp}" 2>/dev/null)
`
	runsCommand = `    if [[ "${requestComp}" == *'$('* || "${requestComp}" == *'` + "`" + `'* || "${requestComp}" == *'${ '* || "${requestComp}" == *[\<\>=]'('* ]]; then
        out=':4'
    else
    %s    fi
`
)

func generateBash(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	err := root.GenBashCompletionV2(&script, true)
	return errors.Join(err, replaceInScript(w, script.String(), bashEscapesOne, bashEscapesAll, bashEvaluates, fmt.Sprintf(runsCommand, bashEvaluates)))
}

// replaceInScript writes a script with some parts replaced: parts alternates old and new.
func replaceInScript(w io.Writer, script string, parts ...string) error {
	for i := 0; i < len(parts); i += 2 {
		if !strings.Contains(script, parts[i]) {
			return errors.New("the completion script is not the one that this program mends") // cobra's has changed
		}
		script = strings.Replace(script, parts[i], parts[i+1], 1)
	}
	_, err := io.WriteString(w, script)
	return err
}

// shellVerb returns the verb that prints a completion script, in place of cobra's, which has other help.
func shellVerb(generate func(*cobra.Command, io.Writer) error) verb {
	return func(_ *globals, cmd *cobra.Command) {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return generate(cmd.Root(), cmd.OutOrStdout()) }
	}
}

// newHelpCommand is cobra's help command, except that it fails for an unknown command.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command, about exit-codes, or about the environment",
		ValidArgsFunction: func(_ *cobra.Command, args []string, half string) ([]string, cobra.ShellCompDirective) {
			names := helpTopics()
			if len(args) > 0 {
				names = nil
			}
			if cmd, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, one := range cmd.Commands() {
					if one.IsAvailableCommand() {
						names = append(names, one.Name()+"\t"+one.Short)
					}
				}
			}
			return withPrefix(half, names), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(help *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(helpTopics(), args[0]) {
				_, err := fmt.Fprint(help.OutOrStdout(), glossary(topic(args[0])))
				return err
			}
			cmd, rest, err := root.Find(args)
			if err != nil {
				return usagef("%v", err)
			}
			if len(rest) > 0 {
				return needsVerb(cmd, rest)
			}
			cmd.InitDefaultHelpFlag() // help lists the flag --help
			return cmd.Help()
		},
	}
}

// needsVerb is the action of a command that only groups others. People see its help; programs, which expect
// objects, get an error with the commands.
func needsVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && term.Format(cmd.Flag("output").Value.String()).ForPrograms() {
		var names []string
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				names = append(names, child.Name())
			}
		}
		return usagef("%s needs one of the commands %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	if len(args) == 0 {
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("%s needs one of the commands above", cmd.CommandPath())
	}
	advice := fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	where, meant := "", ""
	if !cmd.HasParent() && !strings.Contains(args[0], "/") { // words below a group have a "/"
		meant = meaningOf(args[0])
	} else if cmd.HasParent() {
		group := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		where, meant = group+": ", meaningOf(group+"/"+args[0])
		isPath := strings.Contains(args[0], "/")
		takes := isPath || cmd.ArgsLenAtDash() >= 0 || slices.Contains([]string{"acquire", "take", "get", "hold", "run", "try"}, args[0])
		if path := "PATH"; meant == "" && group == "lock" && takes {
			if isPath {
				path = quoted(args[0])
			}
			meant = fmt.Sprintf("'chubbyctl acquire %s -- CMD' takes a lock, and runs a command while it is held", path)
		}
	}
	if near := cmd.SuggestionsFor(args[0]); meant != "" {
		advice = meant
	} else if len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%sthere is no command %q; %s", where, args[0], advice)
}
