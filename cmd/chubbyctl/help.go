package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
	"github.com/chubbylock/chubby/internal/supervise"
	"github.com/chubbylock/chubby/misuse"
)

// entry is a word and its meaning, for help and the reference pages.
type entry struct{ word, meaning string }

func exitCodes() []entry {
	code := func(n int, meaning string) entry { return entry{fmt.Sprint(n), meaning} }
	return []entry{
		code(0, "done"),
		code(exitFailed, "any other failure"),
		code(exitUsage, "the command line was not understood, or --yes is missing"),
		code(exitMismatch, "a sequencer is not valid (sequencer check, --if-sequencer), or something is at another generation, or there already (--if-generation, --if-absent, txn); or lint has found something"),
		code(exitOverLimit, "drill: what it measured was longer than --limit"),
		code(exitUnavailable, "no master of the cell was reached within --timeout, or it is of an older version, which does not know what was asked for; nothing was changed"),
		code(exitLost, "the lock was lost while CMD ran, and CMD was stopped"),
		code(exitHeld, "--try: the lock is held by another, or delayed; --detect-deadlock: a deadlock"),
		code(exitUncertain, "no answer came within --timeout, and the change may or may not have been made, or a part of it was; 69 says that nothing was changed"),
		code(exitDenied, "permission denied"),
		code(exitWaited, "--wait ran out"),
		{fmt.Sprintf("%d, %d", supervise.ExitNotRunnable, supervise.ExitNotFound), "CMD could not be run, or was not found"},
		{fmt.Sprintf("%d+n", exitBySignal), "ended by signal n: CMD, or chubbyctl itself; 141 is also that nobody reads any more what it prints"},
		{"other", "CMD's own, if it ran to its end while the lock was held"},
	}
}

// environment lists the variables that chubbyctl reads, and those it sets for commands.
func environment() []entry {
	return []entry{
		{"CHUBBY_CELLS", `where cells are: "foo=h1:7421,h2:7421;bar=h3:7421"`},
		{"CHUBBY_CELL", "the default cell, as --cell"},
		{"CHUBBY_CONFIG", "the file that says where cells are, instead of ~/.config/chubby/cells.yaml"},
		{"CHUBBY_CACERT, CHUBBY_CERT, CHUBBY_KEY", "files of certificates, as --cacert, --cert and --key; cells.yaml may name them for each cell, too"},
		{"CHUBBY_TOKEN_FILE", "a file with a token, as --token-file; cells.yaml may name it, too"},
		{"CHUBBY_DOMAIN", "the domain in whose DNS cells are looked up, as _chubby._tcp.<cell>.<domain>"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "as --trace-endpoint, if it is for gRPC; OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE and their like say the rest"},
		{"NO_COLOR", "no colours if it is not empty; there are none in a pipe, nor with TERM=dumb"},
		{"CHUBBY_LOCK, CHUBBY_SEQUENCER, CHUBBY_TOKEN, CHUBBY_SESSION", "what a command that runs under a lock is told of it; see acquire. CHUBBY_TOKEN is its fencing token, and no secret: chubbyctl does not read it; the token that says who you are is in CHUBBY_TOKEN_FILE"},
		{"CHUBBY_SLOT, CHUBBY_MEMBER", "what a command is told of its slot (semaphore), and of its membership (members join)"},
		{"CHUBBY_EVENT, CHUBBY_PATH, CHUBBY_CHILD, CHUBBY_GENERATION", "what watch --exec tells its command"},
	}
}

// helpValues are those of the words in help.txt, each with its name before it.
func helpValues() (pairs []string) {
	var abilities []string
	for _, a := range acts() {
		abilities = append(abilities, fmt.Sprintf("  %-7s %s", a.word, a.explain))
	}
	for name, value := range map[string]any{
		"acts": strings.Join(abilities, "\n"), "kinds": strings.ReplaceAll(strings.Join(kindNames(subscribable()), ", "), "conflicting", "\n  conflicting"),
		"misuses": strings.ReplaceAll(strings.Join(misuseNames(), ", "), "unused-cache, ", "unused-cache,\n"), "signals": describeSignals(),
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

func versionVerb(g *globals, cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := builtFrom()
		return g.output.Say(cmd.OutOrStdout(), v, "%s", strings.TrimSuffix(v.String(), "\n"))
	}
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
